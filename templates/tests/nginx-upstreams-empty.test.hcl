# A catalog that is empty makes a file that nginx accepts.
config   = ["../examples/nginx.hcl"]
template = "nginx-upstreams"
source   = "../nginx-upstreams.ctmpl"

expect {
  contains = ["# Written by jorc"]
  lacks    = ["upstream"]
}
