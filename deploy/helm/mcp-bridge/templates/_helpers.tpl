{{- define "mcp-bridge.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "mcp-bridge.selector" -}}
app.kubernetes.io/name: mcp-bridge{{ if eq (.Values.role | default "") "worker" }}-worker{{ end }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mcp-bridge.labels" -}}
{{ include "mcp-bridge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels as above, of the workers. */}}
{{- define "mcp-bridge.workers" -}}
{{- include .labels (dict "Values" (dict "role" "worker") "Chart" .root.Chart "Release" .root.Release) }}
{{- end }}

{{/* Who connects to the port for other pods: those of the bridge. */}}
{{- define "mcp-bridge.peers" -}}
- podSelector:
    matchLabels: {{- include "mcp-bridge.selector" . | nindent 6 }}
{{- if .Values.workers.enabled }}
- podSelector:
    matchLabels: {{- include "mcp-bridge.workers" (dict "labels" "mcp-bridge.selector" "root" .) | nindent 6 }}
{{- end }}
{{- end }}

{{- define "mcp-bridge.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "mcp-bridge.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "mcp-bridge.configMap" -}}
{{ .Values.existingConfigMap | default (include "mcp-bridge.name" .) }}
{{- end }}

{{/* The image of values v, of the chart c. */}}
{{- define "mcp-bridge.image" -}}
{{- if .v.image.digest }}{{ .v.image.repository }}@{{ .v.image.digest }}{{ else }}{{ .v.image.repository }}:{{ .v.image.tag | default .c.AppVersion }}{{ end }}
{{- end }}

{{/* What does not fit together is refused. */}}
{{- define "mcp-bridge.check" -}}
{{- $v := .Values }}
{{- if and (not $v.existingConfigMap) (not $v.config.servers) }}
{{- fail "config.servers is empty: name at least one server, or an existingConfigMap" }}
{{- end }}
{{- if and (not $v.existingConfigMap) (not $v.access) (not $v.config.access) (not $v.insecure) }}
{{- fail "access is empty: name callers with their Secrets, or set insecure: true to serve everybody who reaches the pod" }}
{{- end }}
{{- if and $v.config.oauth (not (include "mcp-bridge.public" .)) }}
{{- fail "config.oauth needs config.public_url: the address that clients type in, such as https://mcp.example.com; with ingress or httpRoute it is made of the first host" }}
{{- end }}
{{- $several := or (gt (int $v.replicas) 1) (and $v.autoscaling.enabled (gt (int $v.autoscaling.maxReplicas) 1)) }}
{{- if and $several (not $v.cluster.enabled) (ne $v.service.sessionAffinity "ClientIP") }}
{{- fail "several replicas do not share their sessions: set cluster.enabled with Redis, or service.sessionAffinity: ClientIP" }}
{{- end }}
{{- if and $several (not $v.cluster.enabled) (or $v.ingress.enabled $v.httpRoute.enabled) }}
{{- fail "several replicas do not share their sessions, and what is in front of them does not heed service.sessionAffinity: set cluster.enabled with Redis" }}
{{- end }}
{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) }}
{{- fail "autoscaling.minReplicas is more than autoscaling.maxReplicas" }}
{{- end }}
{{- if and $v.ark.enabled (hasKey $v.config "tls") }}
{{- fail "ark.enabled: ARK reaches a Service over HTTP only; leave config.tls out" }}
{{- end }}
{{- if or $v.access $v.config.access }}
{{- if and $v.serviceMonitor.enabled (not $v.serviceMonitor.access) (not $v.config.public_status) }}
{{- fail "serviceMonitor.access is empty, and /metrics needs a key: name an item of access" }}
{{- end }}
{{- if and $v.ark.enabled (not $v.ark.access) }}
{{- fail "ark.access is empty, and the servers need a key: name an item of access" }}
{{- end }}
{{- end }}
{{- if $v.cluster.enabled }}
{{- if or (not $v.cluster.redis.existingSecret) (not $v.cluster.secret.existingSecret) }}
{{- fail "cluster.enabled needs cluster.redis.existingSecret with the address of Redis, and cluster.secret.existingSecret with a secret of at least 32 characters" }}
{{- end }}
{{- if $v.existingConfigMap }}
{{- fail "cluster.enabled has no effect with existingConfigMap: configure the cluster there" }}
{{- end }}
{{- if eq (int $v.cluster.port) (int $v.port) }}
{{- fail "cluster.port must be another one than port" }}
{{- end }}
{{- end }}
{{- if $v.workers.enabled }}
{{- if not $v.cluster.enabled }}
{{- fail "workers.enabled needs cluster.enabled, with Redis" }}
{{- end }}
{{- $placed := false }}
{{- range $v.config.servers }}{{ if eq (.place | default "here") "workers" }}{{ $placed = true }}{{ end }}{{ end }}
{{- $s := $v.workers.autoscaling }}
{{- if and $s.enabled (gt (int $s.minReplicas) (int $s.maxReplicas)) }}
{{- fail "workers.autoscaling.minReplicas is more than workers.autoscaling.maxReplicas" }}
{{- end }}
{{- if and $s.enabled $s.targetProcesses $v.config.max_children (ge (int $s.targetProcesses) (int $v.config.max_children)) }}
{{- fail (printf "workers.autoscaling.targetProcesses must be less than config.max_children (%d): a worker never has more, and none would be added" (int $v.config.max_children)) }}
{{- end }}
{{- range $key := list "caFile" "certFile" "keyFile" }}
{{- if and $v.serviceMonitor.enabled (hasKey $v.serviceMonitor.tlsConfig $key) }}
{{- fail (printf "serviceMonitor.tlsConfig.%s: a PodMonitor, which is for workers, takes no files; name a Secret or a ConfigMap in ca, cert and keySecret" $key) }}
{{- end }}
{{- end }}
{{- if not $placed }}
{{- fail "workers.enabled, and no server of config has place: workers: the workers would run nothing" }}
{{- end }}
{{- end }}
{{- range $want := list $v.serviceMonitor.access $v.ark.access }}
{{- if $want }}
{{- $found := false }}
{{- range $v.access }}{{ if eq .name $want }}{{ $found = true }}{{ end }}{{ end }}
{{- if not $found }}{{ fail (printf "access has no item of the name %q" $want) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The address of the bridge for clients that show tokens: as config says it, or https and
the first host. */}}
{{- define "mcp-bridge.public" -}}
{{- $v := .Values }}
{{- if $v.config.public_url }}{{ $v.config.public_url }}
{{- else if and $v.ingress.enabled $v.ingress.hosts }}https://{{ first $v.ingress.hosts }}
{{- else if and $v.httpRoute.enabled $v.httpRoute.hostnames }}https://{{ first $v.httpRoute.hostnames }}
{{- end }}
{{- end }}

{{/* The configuration of the bridge. */}}
{{- define "mcp-bridge.config" -}}
{{- $v := .Values }}
{{- $name := include "mcp-bridge.name" . }}
{{- $c := deepCopy $v.config }}
{{- $_ := set $c "listen" (printf ":%d" (int $v.port)) }}
{{- $_ := set $c "drain" (printf "%ds" (int $v.drain)) }}
{{- $_ := set $c "log_level" ($c.log_level | default $v.logLevel) }}
{{- $rules := $c.access | default list }}
{{- range $v.access }}
{{- $rules = append $rules (merge (dict "name" .name "token_file" (printf "/run/secrets/mcp-bridge/%s" .name)) (.rule | default dict)) }}
{{- end }}
{{- if $rules }}{{ $_ := set $c "access" $rules }}{{ end }}
{{- if $c.oauth }}{{ $_ := set $c "public_url" (include "mcp-bridge.public" .) }}{{ end }}
{{- $hosts := $c.allowed_hosts | default list }}
{{- if or $hosts (not $rules) $c.public_status }}
{{- $hosts = concat $hosts (list "${POD_IP}" $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace)) }}
{{- if $v.ingress.enabled }}{{ $hosts = concat $hosts $v.ingress.hosts }}{{ end }}
{{- if $v.httpRoute.enabled }}{{ $hosts = concat $hosts $v.httpRoute.hostnames }}{{ end }}
{{- $_ := set $c "allowed_hosts" (uniq $hosts) }}
{{- end }}
{{- if $v.cluster.enabled }}
{{- $_ := set $c "cluster" (merge (dict "redis" "${CLUSTER_REDIS}" "secret" "${CLUSTER_SECRET}" "listen" (printf ":%d" (int $v.cluster.port)) "advertise" "${POD_IP}") $v.cluster.config) }}
{{- if $v.workers.enabled }}
{{- $_ := set $c.cluster "role" "${CLUSTER_ROLE}" }}
{{- else if $v.cluster.role }}
{{- $_ := set $c.cluster "role" $v.cluster.role }}
{{- end }}
{{- end }}
{{- toYaml $c }}
{{- end }}

{{/* Seconds for a pod to stop in: preStop, drain, and what the servers have to end in. In a
cluster, sessions move for a lease after that. */}}
{{- define "mcp-bridge.grace" -}}
{{- $more := 20 }}
{{- if .Values.cluster.enabled }}
{{- $lease := .Values.cluster.config.lease | default "6s" | toString }}
{{- $more = max $more (add 5 (ternary 60 (int (trimSuffix "s" $lease)) (hasSuffix "m" $lease))) }}
{{- end }}
{{- add .Values.preStopSleep .Values.drain $more }}
{{- end }}

{{/* A probe of a path: the bridge answers to the name localhost wherever it listens. */}}
{{- define "mcp-bridge.probe" -}}
httpGet:
  path: {{ .path }}
  port: mcp
  {{- if .tls }}
  scheme: HTTPS
  {{- end }}
  httpHeaders: [{ name: Host, value: localhost }]
{{- end }}

{{/* The containers, and their volumes. */}}
{{- define "mcp-bridge.containers" -}}
{{- $v := .Values }}
{{- $base := $v.config.base_path | default "" }}
{{- $tls := hasKey $v.config "tls" }}
- name: mcp-bridge
  image: {{ include "mcp-bridge.image" (dict "v" $v "c" .Chart) }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  args:
    - serve
    - -c
    - /etc/mcp-bridge/bridge.yaml
    - --log-format={{ $v.logFormat }}
    {{- if $v.insecure }}
    - --insecure
    {{- end }}
    {{- with $v.extraArgs }}{{ toYaml . | nindent 4 }}{{ end }}
  env:
    - name: POD_IP
      valueFrom: { fieldRef: { fieldPath: status.podIP } }
    {{- if $v.cluster.enabled }}
    - name: CLUSTER_REDIS
      valueFrom: { secretKeyRef: { name: {{ $v.cluster.redis.existingSecret }}, key: {{ $v.cluster.redis.key }} } }
    - name: CLUSTER_SECRET
      valueFrom: { secretKeyRef: { name: {{ $v.cluster.secret.existingSecret }}, key: {{ $v.cluster.secret.key }} } }
    {{- if $v.workers.enabled }}
    - name: CLUSTER_ROLE
      value: {{ $v.role | default $v.cluster.role | default "front" }}
    {{- end }}
    {{- end }}
    {{- with $v.env }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with $v.envFrom }}
  envFrom: {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - { name: mcp, containerPort: {{ $v.port }}, protocol: TCP }
    {{- if $v.cluster.enabled }}
    - { name: cluster, containerPort: {{ $v.cluster.port }}, protocol: TCP }
    {{- end }}
  livenessProbe:
    {{- include "mcp-bridge.probe" (dict "path" (printf "%s/healthz" $base) "tls" $tls) | nindent 4 }}
    periodSeconds: 10
    failureThreshold: 3
  readinessProbe:
    {{- /* A single server that fails is tried again only by a request, and none reaches a pod that is not ready. */}}
    {{- include "mcp-bridge.probe" (dict "path" (printf "%s/%s" $base (ternary "readyz" "healthz" (or (gt (len $v.config.servers) 1) (ne $v.existingConfigMap "") $v.cluster.enabled))) "tls" $tls) | nindent 4 }}
    periodSeconds: 5
    failureThreshold: 2
  {{- if $v.preStopSleep }}
  lifecycle:
    preStop: { sleep: { seconds: {{ $v.preStopSleep }} } }
  {{- end }}
  {{- with $v.resources }}
  resources: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {{- toYaml $v.securityContext | nindent 4 }}
  volumeMounts:
    - { name: config, mountPath: /etc/mcp-bridge, readOnly: true }
    {{- if $v.access }}
    - { name: keys, mountPath: /run/secrets/mcp-bridge, readOnly: true }
    {{- end }}
    - { name: tmp, mountPath: /tmp }
    - { name: home, mountPath: /var/lib/mcp-bridge }
    {{- with $v.extraVolumeMounts }}{{ toYaml . | nindent 4 }}{{ end }}
{{- with $v.extraContainers }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "mcp-bridge.volumes" -}}
- name: config
  configMap: { name: {{ include "mcp-bridge.configMap" . }} }
{{- if .Values.access }}
- name: keys
  projected:
    defaultMode: 0440
    sources:
      {{- range .Values.access }}
      - secret: { name: {{ .existingSecret }}, items: [{ key: {{ .key }}, path: {{ .name }} }] }
      {{- end }}
{{- end }}
- name: tmp
  emptyDir: {}
- name: home
  emptyDir: {}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
