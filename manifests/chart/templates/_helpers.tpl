{{- define "lean-sandbox.namespace" -}}
{{ default .Release.Namespace .Values.namespace.name }}
{{- end }}

{{- /* A Deployment cannot get another selector, so one that is there, the reference's, keeps its own. */}}
{{- define "lean-sandbox.selector" -}}
{{- $there := lookup "apps/v1" "Deployment" (include "lean-sandbox.namespace" .) "agent-sandbox-controller" -}}
{{ dig "spec" "selector" "matchLabels" (dict "app" "agent-sandbox-controller") $there | toYaml }}
{{- end }}

{{- define "lean-sandbox.arguments" -}}
- {{ printf "--leader-elect=%t" .leaderElect | quote }}
{{- if .extensions }}
- --extensions
{{- end }}
{{- with .leaderElectionNamespace }}
- {{ printf "--leader-election-namespace=%s" . | quote }}
{{- end }}
{{- range $name, $value := omit . "leaderElect" "extensions" "leaderElectionNamespace" "extraArgs" }}
{{- /* As JSON, for a large number would be written with an exponent. */}}
- {{ printf "--%s=%s" (kebabcase $name) (kindIs "string" $value | ternary $value (toJson $value)) | quote }}
{{- end }}
{{- range .extraArgs }}
- {{ quote . }}
{{- end }}
{{- end }}
