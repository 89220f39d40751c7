package config

import "testing"

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
