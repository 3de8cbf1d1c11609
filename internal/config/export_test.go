package config

// Default is the configuration without files, environment and flags.
func Default() Config {
	c := base()
	c.derive()
	return c
}
