{{/* What every pod of the chart has in common. */}}

{{- define "quire.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* No privilege to lose: not root, no capability, nothing writable but the volumes. */}}
{{- define "quire.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "quire.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* An environment variable from an entry of the Secret, if it has that. */}}
{{- define "quire.fromSecret" -}}
{{- if has .entry (include "quire.entries" .root | fromJsonArray) -}}
- name: {{ .variable }}
  valueFrom: {secretKeyRef: {name: {{ include "quire.secret" .root }}, key: {{ .entry }}}}
{{- end -}}
{{- end -}}

{{/* Where the volumes are, whatever the image says: the rest of the file system is read-only. */}}
{{- define "quire.folders" -}}
- {name: HOME, value: /tmp}
- {name: XDG_CACHE_HOME, value: /models}
- {name: XDG_DATA_HOME, value: /data}
- {name: HF_HOME, value: /models/huggingface}
- {name: TRITON_CACHE_DIR, value: /models/triton}
{{- end -}}

{{/* Where pods run. `of` is the component's values. */}}
{{- define "quire.placement" -}}
{{- with .of.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .of.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if .of.topologySpreadConstraints }}
  {{- toYaml .of.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "quire.selector" (pick . "root" "component") | nindent 8 }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "quire.podMetadata" -}}
labels:
  {{- include "quire.selector" (pick . "root" "component") | nindent 2 }}
  {{- with .of.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/settings: {{ .root.Values.settings | toJson | sha256sum }}
  {{- if not .root.Values.secrets.existingSecret }}
  checksum/secrets: {{ .root.Values.secrets | toJson | sha256sum }}
  {{- end }}
  {{- with .of.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* CPU and memory as asked for, and GPUs by their number. */}}
{{- define "quire.resources" -}}
{{- $resources := deepCopy .of.resources -}}
{{- if .of.gpus -}}
  {{- $limits := merge (dict .root.Values.gpuResource (int .of.gpus)) (default dict $resources.limits) -}}
  {{- $resources = merge (dict "limits" $limits) $resources -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/* Mounts of a container that holds a model; `quire.modelVolumes` are the volumes. */}}
{{- define "quire.modelMounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: shm, mountPath: /dev/shm}
- {name: models, mountPath: /models}
{{- if .Values.settings }}
- {name: settings, mountPath: /etc/quire/settings, readOnly: true}
{{- end }}
{{- if .Values.engines.enabled }}
- {name: engine-secret, mountPath: /etc/quire/engine, readOnly: true}
{{- end }}
{{- end -}}

{{- define "quire.modelVolumes" -}}
{{- $root := .root -}}
- name: tmp
  emptyDir: {}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ .of.shmSize }}}
- name: models
  {{- if or $root.Values.models.existingClaim $root.Values.models.size }}
  persistentVolumeClaim: {claimName: {{ default (printf "%s-models" (include "quire.fullname" $root)) $root.Values.models.existingClaim }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- if $root.Values.settings }}
- name: settings
  configMap: {name: {{ include "quire.fullname" $root }}}
{{- end }}
{{- if $root.Values.engines.enabled }}
- name: engine-secret
  secret: {secretName: {{ include "quire.secret" $root }}, items: [{key: engine-secret, path: secret}], defaultMode: 0440}
{{- end }}
{{- end -}}
