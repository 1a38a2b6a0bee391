{{/* What no schema can say: values that contradict each other are refused here, with the way out. */}}
{{- define "quire.checks" -}}
{{- $entries := include "quire.entries" . | fromJsonArray -}}
{{- if and .Values.store.size (ne .Values.server.kind "StatefulSet") -}}
{{- fail "store.size gives every pod a claim of its own, which only a StatefulSet has: set server.kind to StatefulSet, or leave store.size empty" -}}
{{- end -}}
{{- if and .Values.engines.enabled (not (has "engine-secret" $entries)) -}}
{{- fail "engines.enabled needs a secret that servers and engines share: set secrets.engineSecret, or secrets.existingSecret and secrets.entries with engine-secret" -}}
{{- end -}}
{{- if and .Values.engines.enabled .Values.server.gpus -}}
{{- fail (printf "server.gpus is %d, but with engines.enabled the engines have the GPUs: set engines.prefill.gpus and engines.decode.gpus, and server.gpus to 0" (int .Values.server.gpus)) -}}
{{- end -}}
{{- if and .Values.engines.enabled (ne .Values.autoscaling.by "none") -}}
{{- fail (printf "autoscaling.by %s adds servers, and with engines.enabled those have no engines of their own: set autoscaling.by to none, and engines.prefill.replicas and engines.decode.replicas" .Values.autoscaling.by) -}}
{{- end -}}
{{- if and .Values.router.enabled (or (has "api-key" $entries) (has "keys.yaml" $entries)) (not (has "member-key" $entries)) -}}
{{- fail "a router with keys needs one of its own for the servers: set secrets.memberKey, or add member-key to secrets.existingSecret and secrets.entries" -}}
{{- end -}}
{{- if and .Values.autoscaling.minReplicas (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail (printf "autoscaling.minReplicas is %d, more than maxReplicas, %d" (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- if .Values.secrets.entries -}}
{{- if not .Values.secrets.existingSecret -}}
{{- fail "secrets.entries tells what secrets.existingSecret has, and that is not set" -}}
{{- end -}}
{{- end -}}
{{- if .Values.secrets.existingSecret -}}
{{- if or .Values.secrets.apiKey .Values.secrets.memberKey .Values.secrets.engineSecret .Values.secrets.hubToken .Values.secrets.namedKeys -}}
{{- fail "secrets.existingSecret is used as it is: leave apiKey, memberKey, engineSecret, hubToken and namedKeys empty, and name its entries in secrets.entries" -}}
{{- end -}}
{{- end -}}
{{- end -}}
