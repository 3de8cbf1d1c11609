# @summary Waits for a service: what requires a blocker is applied once the
#   service is there, and not at all when it does not come.
#
# It asks at each application of the catalog. While the service is there it
# reports no change; when it has to wait it reports one.
#
# @example A schema that needs the database
#   jorc::service_blocker { 'mysql': }
#   -> exec { '/usr/bin/app-schema': }
#
# @param target
#   What to wait for, as `jorc wait` reads it: [TAG.]SERVICE[@DC][=N], or a full
#   DNS name with a dot at its end.
# @param count
#   How many instances, where the target does not say so.
# @param for
#   addressable: registered, whatever their health. functional: answering in
#   Consul's DNS. reachable: functional, and accepting TCP connections.
# @param tries
#   How often to ask before giving up.
# @param try_sleep
#   Seconds between two tries.
# @param timeout
#   Seconds for all of it, whatever tries and try_sleep say. By default each
#   try has ten seconds beside its sleep.
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
    # jorc gives up first, and says what was missing.
    timeout => $limit + 30,
  }
}
