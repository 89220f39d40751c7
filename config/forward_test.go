package config

import "testing"

// Without a word of the operator, a client sets only variables that are for a value: nobody can list those that programs
// read for something else.
func TestValueRule(t *testing.T) {
	s := Server{Stdio: &Stdio{Env: map[string]string{"AWS_REGION": "eu-central-1", "MANPAGER": "less"}}}
	for name, good := range map[string]bool{
		"QT_PLUGIN_PATH": false, "GTK_PATH": false, "GST_PLUGIN_PATH": false, "COR_PROFILER": false, "CORECLR_PROFILER": false, "MAKEFLAGS": false, "SUDO_ASKPASS": false,
		"WGETRC": false, "CURL_HOME": false, "COMPOSER_HOME": false, "TERMINFO": false, "LOCPATH": false, "NLSPATH": false, "PSModulePath": false, "TCLLIBPATH": false,
		"PWD": false, "USER": false, "GOOGLE_CLOUD_PROJECT": false,
		"X_LOG_LEVEL": true, "MCP_USER": true, "GITHUB_PERSONAL_ACCESS_TOKEN": true, "api_token": true, "MYSQL_PWD": true, "PGPASSWORD": true, "TENANT": true, "AZURE_CLIENT_ID": true,
		"AWS_REGION": true, "aws_region": true, "MANPAGER": true,
	} {
		if rule := s.valueRule(name); (rule == "") != good {
			t.Errorf("valueRule(%q) = %q, want it allowed: %t", name, rule, good)
		}
	}
}

// No client may set a variable that runs code or chooses credentials.
func TestVariableRule(t *testing.T) {
	for name, good := range map[string]bool{
		"LUA_INIT": false, "LUA_PATH": false, "PHPRC": false, "PHP_INI_SCAN_DIR": false, "OPENSSL_CONF": false, "ERL_FLAGS": false, "ERL_AFLAGS": false,
		"R_PROFILE": false, "R_PROFILE_USER": false, "R_LIBS": false, "JULIA_LOAD_PATH": false, "AWS_CONFIG_FILE": false, "aws_config_file": false,
		"KUBECONFIG": false, "DOCKER_HOST": false, "REQUESTS_CA_BUNDLE": false, "HOSTALIASES": false, "LD_PRELOAD": false, "HTTPS_PROXY": false, "A-B": false,
		"LESSOPEN": false, "GOPROXY": false, "GOFLAGS": false, "SSH_AUTH_SOCK": false, "SSH_ASKPASS": false, "MYSQL_HOME": false, "PGSERVICEFILE": false, "PGPASSFILE": false, "VIRTUAL_ENV": false,
		"CONDA_PREFIX": false, "GOOGLE_APPLICATION_CREDENTIALS": false, "AWS_ENDPOINT_URL_S3": false, "AWS_CA_BUNDLE": false, "GNUPGHOME": false, "KRB5_CONFIG": false,
		"GITHUB_PERSONAL_ACCESS_TOKEN": true, "X_LOG_LEVEL": true, "AWS_REGION": true, "GOOGLE_API_KEY": true, "GOAL": true, "MYSQL_PWD": true, "PGPASSWORD": true, "SSHKEY": true, "AWS_SESSION_TOKEN": true, "OPENAI_API_KEY": true,
	} {
		if rule := variableRule(name); (rule == "") != good {
			t.Errorf("variableRule(%q) = %q, want it allowed: %t", name, rule, good)
		}
	}
}
