package settings

// Monitors is how things are watched.
type Monitors struct {
	Enabled bool `json:"enabled" jsonschema:"agents have the tool Monitor, and drover monitor works; true if not set"`
}
