# [[ .Name ]] of 'jorc dev --hosts'. Change what you like, then let all hosts read their files
# again: kill -HUP the pid that 'jorc dev' has printed.

member {
  roles = ["web"]
}
[[- if .Candidate ]]

orchestrator {}
[[- end ]]

# Its check fails if pool.conf leaves it no workers.
service "web" {
  check {
    script   = ["sh", "-c", "if grep -x 'workers 0' \"$1\"; then exit 2; fi", "web", [[ path "pool.conf" ]]]
    interval = "1s"
  }
}

# New content of pool.conf reaches one host first, and the others when the checks of that one pass.
template "pool" {
  contents    = "workers {{ paramOr \"workers\" 4 }}\n"
  destination = [[ path "pool.conf" ]]

  stage "pool" {
    canary        = 1
    max_parallel  = 2
    min_healthy   = "3s"
    node_deadline = "8s"
  }
}

# What a new version does on this host.
static {
  workflow = "install"
}

workflow "install" {
  task "unpack" {
    command    = ["sh", "-c", "if test -e disk-full; then echo 'Error: no space left on device'; exit 1; fi; echo \"$JORC_VERSION\" >installed"]
    dir        = [[ path "" ]]
    idempotent = true
  }
}

workflow "backup" {
  task "copy" {
    command    = ["sh", "-c", "if test -e disk-full; then echo 'Error: no space left on device'; exit 1; fi; cp installed installed.bak"]
    dir        = [[ path "" ]]
    idempotent = true
  }
}
