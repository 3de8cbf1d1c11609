# @summary Waits for a service: Puppet applies resources that require a blocker
#   once the service has instances, and skips them if the wait fails.
#
# The blocker checks at each application of the catalog and reports a change only
# if it had to wait.
#
# @example A schema that needs the database
#   jorc::service_blocker { 'mysql': }
#   -> exec { '/usr/bin/app-schema': }
#
# @param target
#   What to wait for, as `jorc wait` reads it: [TAG.]SERVICE[@DC][=N], or a full
#   DNS name with a dot at its end.
# @param count
#   The number of instances, if the target does not give it.
# @param for
#   addressable: registered, whatever their health. functional: answering in
#   Consul's DNS. reachable: functional, and accepting TCP connections.
# @param tries
#   The number of checks before the blocker fails.
# @param try_sleep
#   Seconds between two tries.
# @param timeout
#   Seconds for all tries together, which overrides tries and try_sleep. By
#   default each try has ten seconds in addition to its sleep.
# @param extra
#   Further arguments of `jorc wait`, such as '--passing'.
define jorc::service_blocker (
  Pattern[/\A[^-\s]\S*\z/]                       $target    = $title,
  Optional[Integer[1]]                           $count     = undef,
  Enum['addressable', 'functional', 'reachable'] $for       = 'functional',
  Integer[1]                                     $tries     = 30,
  Variant[Integer[0], Float[0.0]]                $try_sleep = 10,
  Optional[Integer[1]]                           $timeout   = undef,
  Array[Pattern[/\A-./]]                         $extra     = [],
) {
  include jorc

  if $count and $target =~ /=/ {
    fail("Jorc::Service_blocker[${title}]: the target '${target}' has a count already: leave out count => ${count}")
  }
  $limit = $timeout ? {
    undef   => Integer($tries * ($try_sleep + 10)),
    default => $timeout,
  }
  $counted = $count ? {
    undef   => $target,
    default => "${target}=${count}",
  }
  $wait = $jorc::argv + ['wait', "--for=${for}"] + $extra

  exec { "jorc::service_blocker ${title}":
    command => $wait + ["--tries=${tries}", "--try-sleep=${try_sleep}s", "--timeout=${limit}s", $counted],
    unless  => [$wait + ['--tries=1', '--timeout=10s', $counted]],
    # jorc times out first and reports what is missing.
    timeout => $limit + 30,
  }
}
