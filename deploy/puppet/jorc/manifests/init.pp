# @summary Paths and addresses of jorc and Consul, for the other parts of this module.
#
# The defaults fit a host with jorc in /usr/bin and a Consul agent at its default
# addresses.
#
# @param command
#   The jorc program.
# @param http_addr
#   Consul's HTTP API, HOST:PORT or a URL; by default the value of
#   CONSUL_HTTP_ADDR, otherwise 127.0.0.1:8500.
# @param dns_addr
#   Consul's DNS, HOST:PORT; by default 127.0.0.1:8600.
# @param token_file
#   A file that holds a Consul token.
# @param state_dir
#   The state directory of the jorc agent on this host.
# @param services_dir
#   The directory of the definitions of `jorc::service`. `jorc::services`
#   manages it; its parent must exist.
class jorc (
  Pattern[/\A\//]           $command      = '/usr/bin/jorc',
  Optional[String[1]]       $http_addr    = undef,
  Optional[String[1]]       $dns_addr     = undef,
  Optional[Pattern[/\A\//]] $token_file   = undef,
  Optional[Pattern[/\A\//]] $state_dir    = undef,
  Pattern[/\A\//]           $services_dir = '/etc/jorc/services',
) {
  $settings = {
    '--http-addr'  => $http_addr,
    '--dns-addr'   => $dns_addr,
    '--token-file' => $token_file,
    '--state-dir'  => $state_dir,
  }.filter |$flag, $value| { $value =~ NotUndef }

  # The beginning of each jorc command: an argument list that no shell reads.
  $argv = [$command] + $settings.map |$flag, $value| { "${flag}=${value}" }
}
