template "none" {
  destination = "/run/jorc-test/none"
}
template "both" {
  source      = "a.ctmpl"
  contents    = "b"
  destination = "/run/jorc-test/both"
}
template "nowhere" {
  contents = "x"
}
template "relative" {
  contents    = "x"
  destination = "etc/x"
}
template "dir" {
  contents    = "x"
  destination = "/run/jorc-test/"
}
template "a/b" {
  contents     = "x"
  destination  = "/run/jorc-test/c"
  perms        = "0888"
  wait         = "2s:1s"
  max_shrink   = "101%"
  max_parallel = 2
}
template "" {
  contents    = "x"
  destination = "/run/jorc-test/d"
  perms       = "rw-r--r--"
  wait        = "soon"
  max_shrink  = "half"
  requires "" {}
}
