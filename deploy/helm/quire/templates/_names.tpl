{{/* Names and labels. A component is server, router, prefill or decode. */}}

{{- define "quire.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "quire.fullname" -}}
{{- $name := include "quire.name" . -}}
{{- $joined := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $joined .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of a component's objects: servers have the plain one. */}}
{{- define "quire.component" -}}
{{- $name := include "quire.fullname" .root -}}
{{- ternary $name (printf "%s-%s" $name .component) (eq .component "server") -}}
{{- end -}}

{{- define "quire.selector" -}}
app.kubernetes.io/name: {{ include "quire.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "quire.labels" -}}
{{ include "quire.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{- define "quire.secret" -}}
{{- default (include "quire.fullname" .) .Values.secrets.existingSecret -}}
{{- end -}}

{{/* The entries that the Secret has, as a list in JSON. */}}
{{- define "quire.entries" -}}
{{- $has := list -}}
{{- with .Values.secrets -}}
  {{- if .existingSecret -}}
    {{- $has = .entries -}}
  {{- else -}}
    {{- if .apiKey }}{{ $has = append $has "api-key" }}{{ end -}}
    {{- if .memberKey }}{{ $has = append $has "member-key" }}{{ end -}}
    {{- if .engineSecret }}{{ $has = append $has "engine-secret" }}{{ end -}}
    {{- if .hubToken }}{{ $has = append $has "hub-token" }}{{ end -}}
    {{- if .namedKeys }}{{ $has = append $has "keys.yaml" }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- $has | toJson -}}
{{- end -}}

{{/* Names by which a component is reached. With keys any name is good, unless some are given; without, a web page could
make a name of its own point here, so quire wants to be told them. */}}
{{- define "quire.allowedHosts" -}}
{{- $entries := include "quire.entries" .root | fromJsonArray -}}
{{- $key := ternary "member-key" "api-key" (and .root.Values.router.enabled (eq .component "server")) -}}
{{- if or .of.allowedHosts (not (or (has $key $entries) (has "keys.yaml" $entries))) }}
{{- $name := include "quire.component" . -}}
{{- $names := list $name -}}
{{- range list "" ".svc" ".svc.cluster.local" }}{{ $names = append $names (printf "%s.%s%s" $name $.root.Release.Namespace .) }}{{ end }}
- --allowed-hosts={{ concat $names .of.allowedHosts | join "," }}
{{- end }}
{{- end -}}

{{/* Where servers find the engines of a release: every pod of a StatefulSet has a name. */}}
{{- define "quire.engineAddresses" -}}
{{- $addresses := list -}}
{{- range $role := list "prefill" "decode" -}}
  {{- $name := include "quire.component" (dict "root" $ "component" $role) -}}
  {{- range $number := until (int (index $.Values.engines $role).replicas) -}}
    {{- $addresses = append $addresses (printf "tcp://%s-%d.%s:%d" $name $number $name (int $.Values.engines.port)) -}}
  {{- end -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{- define "quire.podsOf" -}}
podSelector:
  matchLabels: {{- include "quire.selector" . | nindent 4 }}
{{- end -}}
