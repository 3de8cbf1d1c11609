# frozen_string_literal: true

require 'open3'
require 'yaml'

# A Hiera 5 backend (lookup_key) for the addresses of services:
#
#   services::SERVICE::INTERFACE   all of them, a list
#   service::SERVICE::INTERFACE    the first one, a string
#
# INTERFACE is the name of a tagged address, or lan when a service has none.
# Only functional instances count (passing or warning), or all with the option
# `for: addressable`. Other keys, and services without such an instance, are not
# found here: Hiera continues with the next level.
#
# With `path` it reads a file that `jorc service export --format hiera --file`
# wrote; without a path it queries Consul through jorc, once per catalog.
Puppet::Functions.create_function(:'jorc::service_lookup') do
  # @param key The key that is looked up.
  # @param options `path`: a file as above. `command`: the jorc program, by
  #   default jorc. `arguments`: a list of further arguments, such as
  #   --http-addr=127.0.0.1:8500. `for`: functional (the default) or addressable,
  #   as in `jorc wait`.
  # @param context Hiera's.
  # @return The addresses. A value that is not a list of strings is an error, and
  #   so is a Consul that does not answer: an outage never means "no service".
  dispatch :service_lookup do
    param 'String[1]', :key
    param 'Struct[{ Optional[path] => String[1], Optional[command] => String[1], Optional[arguments] => Array[String[1]], Optional[for] => Enum[functional, addressable] }]', :options
    param 'Puppet::LookupContext', :context
  end

  def service_lookup(key, options, context)
    match = %r{\A(services?)::(.+)::(.+)\z}m.match(key)
    return context.not_found if match.nil?

    name = "services::#{match[2]}::#{match[3]}"
    source, services = services(options, context)
    return context.not_found unless services.key?(name)

    list = addresses(name, services[name], source)
    return list if match[1] == 'services'

    list.empty? ? context.not_found : list.first
  end

  # All services, and their source.
  def services(options, context)
    path = options['path']
    return [path, context.cached_file_data(path) { |text| parse(text, path) }] if path

    command = [options.fetch('command', 'jorc'), *options.fetch('arguments', []), 'service', 'export', '--format=hiera']
    command << "--for=#{options['for']}" if options.key?('for')
    source = command.join(' ')
    context.cache(source, parse(run(command), source)) unless context.cache_has_key(source)
    [source, context.cached_value(source)]
  end

  def addresses(name, value, source)
    return value if value.is_a?(Array) && value.all?(String)

    raise Puppet::DataBinding::LookupError, "jorc::service_lookup: #{name} in #{source} must be a list of addresses, but is #{value.inspect}"
  end

  def run(command)
    out, err, status = Open3.capture3(*command)
    return out if status.success?

    raise Puppet::DataBinding::LookupError, "jorc::service_lookup: #{command.join(' ')}: #{err.strip} (#{status})"
  rescue SystemCallError => e
    raise Puppet::DataBinding::LookupError, "jorc::service_lookup: #{command.first} cannot be run: #{e.message}: set its option command"
  end

  def parse(text, source)
    data = YAML.safe_load(text) || {}
    return data if data.is_a?(Hash)

    raise Puppet::DataBinding::LookupError, "jorc::service_lookup: #{source} must be a mapping of services, but is a #{data.class}"
  rescue YAML::SyntaxError => e
    raise Puppet::DataBinding::LookupError, "jorc::service_lookup: #{source} is not YAML: #{e.message}"
  end
end
