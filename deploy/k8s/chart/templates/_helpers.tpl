{{- define "warren.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What the Services, the budget and the policy select: the same on the pods of all zones, for ever. */}}
{{- define "warren.selector" -}}
app.kubernetes.io/name: warren
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "warren.labels" -}}
{{ include "warren.selector" . }}
app.kubernetes.io/part-of: warren
{{- end -}}

{{- define "warren.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if eq $tag "latest" -}}
{{- fail "image.tag: latest is refused, because a pod that restarts could be another program" -}}
{{- end -}}
{{ .Values.image.repository }}:{{ $tag }}
{{- end -}}

{{/* The StatefulSets, as a list in JSON: one, or one for each zone. */}}
{{- define "warren.sets" -}}
{{- .Values.zones | default (list (dict "replicas" .Values.replicas)) | toJson -}}
{{- end -}}

{{/* The names of all pods of a set. */}}
{{- define "warren.pods" -}}
{{- $name := include "warren.fullname" .root -}}
{{- $set := .set -}}
{{- range $i := until (int $set.replicas) }}{{ if $i }},{{ end }}{{ $name }}{{ with get $set "name" }}-{{ . }}{{ end }}-{{ $i }}{{ end -}}
{{- end -}}

{{/* The names of all pods. */}}
{{- define "warren.nodes" -}}
{{- $names := list -}}
{{- range $set := include "warren.sets" . | fromJsonArray -}}
{{- $names = append $names (include "warren.pods" (dict "root" $ "set" $set)) -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{/* The zones of those that have one, as `warren restore` has them. */}}
{{- define "warren.nodeZones" -}}
{{- $zones := list -}}
{{- range $set := include "warren.sets" . | fromJsonArray -}}
{{- if get $set "zone" -}}
{{- range $pod := include "warren.pods" (dict "root" $ "set" $set) | splitList "," -}}
{{- $zones = append $zones (printf "%s=%s" $pod (get $set "zone")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- join "," $zones -}}
{{- end -}}

{{/* Not empty if clients may come without TLS. */}}
{{- define "warren.plain" -}}
{{- if or .Values.tls.clients.plain (not .Values.tls.clients.secretName) -}}
true
{{- end -}}
{{- end -}}

{{/* The Secret with the default user; empty: there is none. */}}
{{- define "warren.userSecret" -}}
{{- if .Values.auth.existingSecret -}}
{{- .Values.auth.existingSecret -}}
{{- else if .Values.auth.username -}}
{{- include "warren.fullname" . }}-default-user
{{- end -}}
{{- end -}}

{{/* The Secret with the keys of gossip. */}}
{{- define "warren.gossipSecret" -}}
{{- .Values.gossip.existingSecret | default (printf "%s-gossip" (include "warren.fullname" .)) -}}
{{- end -}}

{{/* The Secret with the nodes' certificate. */}}
{{- define "warren.clusterSecret" -}}
{{- .Values.tls.cluster.secretName | default (printf "%s-cluster-tls" (include "warren.fullname" .)) -}}
{{- end -}}

{{/* The data of a Secret as it is in the cluster, as YAML; empty if there is none, or nobody was asked. */}}
{{- define "warren.kept" -}}
{{- $old := lookup "v1" "Secret" .root.Release.Namespace .name -}}
{{- with get $old "data" -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* The Secret or ConfigMap with definitions, empty if there is none. */}}
{{- define "warren.definitions" -}}
{{- with .Values.definitions -}}
{{- if and .existingSecret .configMap -}}
{{- fail "definitions: name a Secret or a ConfigMap, not both" -}}
{{- end -}}
{{- .existingSecret | default .configMap -}}
{{- end -}}
{{- end -}}
