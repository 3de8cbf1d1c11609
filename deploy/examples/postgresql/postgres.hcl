# On each host with PostgreSQL: the leader of the cluster orders-db has the primary, the others have standbys.
cluster = "orders-db"

member {
  roles        = ["postgres"]
  on_lead      = "promote"
  on_step_down = "demote"
}

workflow "promote" {
  task "primary" {
    command    = ["/usr/local/sbin/postgres-role", "primary"]
    retries    = 3
    idempotent = true
  }
}

workflow "demote" {
  task "stop" {
    command    = ["/usr/local/sbin/postgres-role", "stop"]
    idempotent = true
  }
}

# A standby follows each new primary.
trigger "primary" {
  service  = "postgres"
  workflow = "follow"
}

workflow "follow" {
  task "standby" {
    command    = ["/usr/local/sbin/postgres-role", "standby"]
    retries    = 3
    timeout    = "12h" # a copy of the whole database
    idempotent = true
  }
}

workflow "copy" {
  task "standby" {
    command    = ["/usr/local/sbin/postgres-role", "standby", "again"]
    timeout    = "12h"
    idempotent = true
  }
}
