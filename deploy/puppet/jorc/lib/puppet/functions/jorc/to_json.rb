# frozen_string_literal: true

require 'json'

# Renders data as indented JSON. Keys are sorted and undefined values left out,
# so that the same data gives the same text.
Puppet::Functions.create_function(:'jorc::to_json') do
  # @param data What to render.
  # @return The text, with a newline at its end.
  # @example
  #   file { '/etc/x.json': content => jorc::to_json({ 'port' => 80 }) }
  dispatch :to_json do
    param 'Data', :data
    return_type 'String'
  end

  def to_json(data)
    "#{JSON.pretty_generate(sorted(data))}\n"
  end

  def sorted(value)
    case value
    when Hash then value.compact.sort.to_h.transform_values { |v| sorted(v) }
    when Array then value.map { |v| sorted(v) }
    else value
    end
  end
end
