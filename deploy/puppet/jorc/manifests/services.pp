# @summary The directory of the definitions that `jorc::service` registers.
class jorc::services {
  include jorc

  file { $jorc::services_dir:
    ensure => directory,
    mode   => '0700',
  }
}
