package era

// DiscoverResult is what a legacy server said in answer to initialize, as the
// answer to server/discover (protocol.md D1.3). supported are the revisions that
// the bridge serves. Without subscribe nothing is promised of changes.
func DiscoverResult(initialize []byte, supported []string, subscribe bool) []byte {
	versions := make([][]byte, len(supported))
	for i, v := range supported {
		versions[i] = quoted(v)
	}
	capabilities := serverCapabilities(get(initialize, "capabilities"))
	if !subscribe {
		capabilities = edit(capabilities, func(name, value []byte) []byte {
			switch string(name) {
			case "tools", "prompts", "resources":
				return drop(value, "listChanged", "subscribe")
			}
			return value
		})
	}
	meta := get(initialize, "_meta")
	if !isObject(meta) {
		meta = []byte("{}")
	}
	meta = drop(meta, KeyServerInfo)
	if info := get(initialize, "serverInfo"); isObject(info) {
		meta = put(meta, KeyServerInfo, info)
	}
	out := append([]byte(`{"resultType":"complete","supportedVersions":`), list(versions...)...)
	out = append(append(out, `,"capabilities":`...), capabilities...)
	out = others(out, initialize)
	out = append(out, `,"ttlMs":0,"cacheScope":"private"`...)
	if !isEmpty(meta) {
		out = append(append(out, `,"_meta":`...), meta...)
	}
	return append(out, '}')
}

// InitializeResult is what a server of 2026-07-28 said in answer to
// server/discover, as the answer to the initialize of a legacy client of that
// revision (protocol.md D2.2). name is what a server is called that does not
// say.
func InitializeResult(discover []byte, revision, name string) []byte {
	meta := get(discover, "_meta")
	info := get(meta, KeyServerInfo)
	if !isObject(info) {
		info = get(discover, "serverInfo") // where drafts of the revision had it
	}
	if !isObject(info) {
		info = []byte("{}")
	}
	for _, must := range []struct{ name, value string }{{"name", name}, {"version", "unknown"}} {
		if _, ok := text(get(info, must.name)); !ok {
			info = put(info, must.name, quoted(must.value))
		}
	}
	out := append([]byte(`{"protocolVersion":`), quoted(revision)...)
	out = append(append(out, `,"capabilities":`...), serverCapabilities(get(discover, "capabilities"))...)
	out = append(append(out, `,"serverInfo":`...), implementation(info, revision)...)
	out = others(out, discover)
	if isObject(meta) {
		if meta = drop(meta, KeyServerInfo); !isEmpty(meta) {
			out = append(append(out, `,"_meta":`...), meta...)
		}
	}
	return append(out, '}')
}

// others appends what a result has beside the members that only one of the two
// results has, and those that are made anew.
func others(out, result []byte) []byte {
	members(result, func(name, value []byte) {
		switch string(name) {
		case "protocolVersion", "serverInfo", "capabilities", "_meta",
			"resultType", "supportedVersions", "ttlMs", "cacheScope":
			return
		case "instructions":
			if _, ok := text(value); !ok {
				return
			}
		}
		out = append(append(append(append(out, ','), quoted(string(name))...), ':'), value...)
	})
	return out
}
