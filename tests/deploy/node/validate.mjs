// Reads manifests as a JSON list and prints what each kind's own schema has against it: a line a complaint.
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";

const kinds = { PrometheusRule, ScaledObject, ServiceMonitor };
let text = "";
for await (const piece of process.stdin) text += piece;
for (const manifest of JSON.parse(text)) {
  try {
    new kinds[manifest.kind](manifest).validate();
  } catch (problem) {
    console.log(`${manifest.kind}: ${problem.message}`);
  }
}
