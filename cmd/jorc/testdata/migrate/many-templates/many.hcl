wait {
  min = "1s"
  max = "4s"
}
default_delimiters {
  left  = "[["
  right = "]]"
}
deduplicate {
  enabled = true
}

template {
  contents    = <<EOF
# file 0
[[ range ls "many/0" ]][[ .Key ]] = [[ .Value ]]
[[ end ]]
EOF
  destination = "DIR/files/d0/file0.conf"
  wait {
    min = "1s"
  }
  backup = true
}

template {
  contents    = <<EOF
# file 1
<< range ls "many/1" >><< .Key >> = << .Value >>
<< end >>
EOF
  destination = "DIR/files/d1/file1.conf"
  left_delimiter = "<<"
  right_delimiter = ">>"
}

template {
  contents    = <<EOF
# file 2
[[ range ls "many/2" ]][[ .Key ]] = [[ .Value ]]
[[ end ]]
EOF
  destination = "DIR/files/d2/file2.conf"
  backup = true
}

template {
  contents    = <<EOF
# file 3
[[ range ls "many/0" ]][[ .Key ]] = [[ .Value ]]
[[ end ]]
EOF
  destination = "DIR/files/d3/file3.conf"
  wait {
    min = "4s"
  }
}

template {
  contents    = <<EOF
# file 4
[[ range ls "many/1" ]][[ .Key ]] = [[ .Value ]]
[[ end ]]
EOF
  destination = "DIR/files/d0/file4.conf"
  backup = true
}

template {
  contents    = <<EOF
# file 5
<< range ls "many/2" >><< .Key >> = << .Value >>
<< end >>
EOF
  destination = "DIR/files/d1/file5.conf"
  left_delimiter = "<<"
  right_delimiter = ">>"
}

template {
  contents    = <<EOF
# file 6
[[ range ls "many/0" ]][[ .Key ]] = [[ .Value ]]
[[ end ]]
EOF
  destination = "DIR/files/d2/file6.conf"
  wait {
    min = "7s"
  }
  backup = true
}

template {
  contents    = <<EOF
# file 7
[[ range ls "many/1" ]][[ .Key ]] = [[ .Value ]]
[[ end ]]
EOF
  destination = "DIR/files/d3/file7.conf"
}

template {
  contents    = <<EOF
# file 8
[[ range ls "many/2" ]][[ .Key ]] = [[ .Value ]]
[[ end ]]
EOF
  destination = "DIR/files/d0/file8.conf"
  backup = true
}

template {
  contents    = <<EOF
# file 9
<< range ls "many/0" >><< .Key >> = << .Value >>
<< end >>
EOF
  destination = "DIR/files/d1/file9.conf"
  wait {
    min = "10s"
  }
  left_delimiter = "<<"
  right_delimiter = ">>"
}

template {
  contents    = <<EOF
# file 10
[[ range ls "many/1" ]][[ .Key ]] = [[ .Value ]]
[[ end ]]
EOF
  destination = "DIR/files/d2/file10.conf"
  backup = true
}

template {
  contents    = <<EOF
# file 11
[[ range ls "many/2" ]][[ .Key ]] = [[ .Value ]]
[[ end ]]
EOF
  destination = "DIR/files/d3/file11.conf"
}
