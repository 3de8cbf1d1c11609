# @summary Registers a service of this host in Consul, or removes it.
#
# The definition is a file. `jorc service register` registers a changed
# definition, and Puppet retries that until it succeeds. A jorc agent on the host
# keeps the service registered and runs its script checks. If the id of a service
# changes, remove the old service with `ensure => absent`.
#
# @example
#   jorc::service { 'web':
#     port   => 8080,
#     tags   => ['http'],
#     checks => [{ 'http' => 'http://127.0.0.1:8080/health', 'interval' => '10s' }],
#   }
#
# @param ensure
#   present or absent.
# @param service
#   The service's name.
# @param id
#   Its id, unique on this host.
# @param port
#   Its port.
# @param address
#   Its address; by default the host's.
# @param tagged_addresses
#   Names of interfaces and their addresses.
# @param tags
#   Its tags.
# @param meta
#   Its metadata.
# @param checks
#   Its checks, in the keys of Consul's definition files.
# @param extra
#   Further keys of the definition.
define jorc::service (
  Enum['present', 'absent']       $ensure           = 'present',
  String[1]                       $service          = $title,
  String[1]                       $id               = $service,
  Optional[Integer[0, 65535]]     $port             = undef,
  Optional[String[1]]             $address          = undef,
  Hash[String[1], String[1]]      $tagged_addresses = {},
  Array[String[1]]                $tags             = [],
  Hash[String[1], String]         $meta             = {},
  Array[Hash[String[1], Data, 1]] $checks           = [],
  Hash[String[1], Data]           $extra            = {},
) {
  include jorc
  include jorc::services

  $path       = "${jorc::services_dir}/${regsubst($id, '[^A-Za-z0-9._-]', '_', 'G')}.json"
  $registered = "${path}.registered"

  if $ensure == 'absent' {
    exec { "jorc::service ${title}":
      command => $jorc::argv + ['service', 'deregister', $id],
      onlyif  => [['/usr/bin/test', '-e', $registered]],
      before  => File[$path, $registered],
    }
    file { [$path, $registered]:
      ensure => absent,
    }
  } else {
    $addresses = $tagged_addresses.reduce({}) |$all, $pair| {
      $all + { $pair[0] => { 'address' => $pair[1], 'port' => $port } }
    }
    $definition = {
      'id'               => $id,
      'name'             => $service,
      'port'             => $port,
      'address'          => $address,
      'tagged_addresses' => $addresses,
      'tags'             => $tags,
      'meta'             => $meta,
      'checks'           => $checks,
    } + $extra
    $content = jorc::to_json({ 'service' => $definition })

    # The registered definition is recorded only after success, so that Puppet
    # retries a failure at the next application of the catalog.
    file { $path:
      content => $content,
      mode    => '0600',
    }
    -> exec { "jorc::service ${title}":
      command => $jorc::argv + ['service', 'register', $path],
      unless  => [['/usr/bin/cmp', '-s', $path, $registered]],
    }
    -> file { $registered:
      content => $content,
      mode    => '0600',
    }
  }
}
