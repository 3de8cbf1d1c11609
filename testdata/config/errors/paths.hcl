static {
  workflow = "w"
  paths    = ["/jorc-test/static/nginx.conf", "/jorc-test/mysql/**", "/jorc-test/tree/"]
}
template "direct" {
  contents    = "x"
  destination = "/jorc-test/static/nginx.conf"
}
template "glob" {
  contents    = "x"
  destination = "/jorc-test/mysql/conf.d/x.cnf"
}
template "dots" {
  contents    = "x"
  destination = "/jorc-test/other/../static/./nginx.conf"
}
template "tree" {
  contents    = "x"
  destination = "/jorc-test/tree/a/b"
}
template "one" {
  contents    = "x"
  destination = "/jorc-test/same"
}
template "two" {
  contents    = "x"
  destination = "/jorc-test//x/../same"
}
template "below" {
  contents    = "x"
  destination = "/jorc-test/same/below"
}
template "self" {
  source      = "/jorc-test/self"
  destination = "/jorc-test/self"
}
workflow "w" {
  task "a" {
    command = ["true"]
  }
}
