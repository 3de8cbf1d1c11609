# The manifest of the repository site.git. A file that its program does not accept never
# replaces the one before, so Puppet fails again when it runs again.
file { '/etc/nginx/conf.d/site.conf':
  content      => file('/var/lib/site/site.conf'),
  mode         => '0644',
  validate_cmd => '/usr/lib/jorc/nginx-check % /etc/nginx/conf.d/site.conf',
}
~> exec { 'reload nginx':
  command     => 'systemctl try-reload-or-restart nginx',
  path        => $facts['path'],
  refreshonly => true,
}
