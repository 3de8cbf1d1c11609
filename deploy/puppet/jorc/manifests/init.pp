# @summary Where jorc and Consul are, for the other parts of this module.
#
# Nothing needs to be said where jorc is in /usr/bin and a Consul agent listens
# at its usual addresses.
#
# @param command
#   The jorc program.
# @param http_addr
#   Consul's HTTP API, HOST:PORT or a URL; by default what CONSUL_HTTP_ADDR
#   says, or else 127.0.0.1:8500.
# @param dns_addr
#   Consul's DNS, HOST:PORT; by default 127.0.0.1:8600.
# @param token_file
#   A file that holds a Consul token.
# @param state_dir
#   The state directory of the jorc agent on this host.
# @param services_dir
#   Where `jorc::service` puts its definitions. The directory belongs to
#   `jorc::services`; its parent must exist.
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

  # What every jorc command line begins with: lists of arguments, which no
  # shell reads.
  $argv = [$command] + $settings.map |$flag, $value| { "${flag}=${value}" }
}
