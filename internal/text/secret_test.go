package text

import "testing"

func TestIsSecretName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"DB_PASSWORD": true, "PGPASSWORD": true, "api-key": true, "apiKey": true, "clientSecret": true, "TOKEN": true, "vault/token": true,
		"passphrase": true, "db.pw": true, "AWS_CREDENTIALS": true, "tokens": true, "DB_SECRETS": true, "APIKEY": true, "ssh_key": true,
		"": false, "disks": false, "monkey": false, "KEYBOARD": false, "tokenizer": false, "passive": false, "keys_url": false, "HOME": false,
	} {
		if got := IsSecretName(name); got != want {
			t.Errorf("IsSecretName(%q) = %t, want %t", name, got, want)
		}
	}
}
