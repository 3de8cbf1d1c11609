# On each host: Puppet applies the manifest of the desired version, once per version.
service "web" {
  port = 80
  check {
    http     = "http://127.0.0.1/health"
    interval = "2s"
    timeout  = "1s"
  }
}

member {
  roles = ["web"]
}

# Each host may be the one that decides who goes next.
orchestrator {}

static {
  workflow   = "converge"
  validation = "validate"
  paths      = ["/etc/nginx/conf.d/site.conf"] # jorc reports who else changes it
}

workflow "converge" {
  task "directory" {
    command    = ["git", "init", "-q", "/var/lib/site"]
    idempotent = true
  }
  task "fetch" {
    command    = ["git", "-C", "/var/lib/site", "fetch", "-q", "--depth=1", "/srv/site.git", "refs/tags/{{.Version}}"]
    timeout    = "5m"
    retries    = 3
    idempotent = true
  }
  task "checkout" {
    command    = ["git", "-C", "/var/lib/site", "checkout", "-q", "-f", "FETCH_HEAD"]
    idempotent = true
  }
  task "puppet" {
    command       = ["puppet", "apply", "--detailed-exitcodes", "--color=false", "/var/lib/site/site.pp"]
    ok_exit_codes = [0, 2] # 2: something was changed; 4 and 6: something failed
    timeout       = "30m"
    kill_grace    = "20s"
    idempotent    = true # a restart of jorc runs Puppet again
  }
}

# The page that users see; the check of the service asks /health only.
workflow "validate" {
  task "page" {
    command    = ["curl", "-fsS", "-o", "/dev/null", "--max-time", "5", "http://127.0.0.1/"]
    retries    = 3
    idempotent = true
  }
}
