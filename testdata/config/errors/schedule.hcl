trigger "ok" {
  schedule = "0 3 * * *"
  workflow = "w"
}
trigger "fields" {
  schedule = "0 3 * *"
  workflow = "w"
}
trigger "zone" {
  schedule = "0 3 * * *"
  zone     = "Europe/Bern"
  workflow = "w"
}
trigger "never" {
  schedule = "0 0 30 2 *"
  workflow = "w"
}
trigger "beside" {
  key      = "k"
  zone     = "UTC"
  splay    = "1m"
  missed   = "skip"
  workflow = "w"
}
trigger "values" {
  schedule = "@daily"
  splay    = "25h"
  missed   = "once"
  workflow = "w"
}
workflow "w" {
  task "t" { command = ["true"] }
}
