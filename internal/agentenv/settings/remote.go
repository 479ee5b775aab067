package settings

import "time"

// Remote is where work can be done elsewhere.
type Remote struct {
	Services map[string]RemoteService `json:"services,omitempty" jsonschema:"services of remote agents, by name"`
	Default  string                   `json:"default,omitempty" jsonschema:"name of the service that is meant where none is named; not set: the only one"`
	Checkers map[string]string        `json:"checkers,omitempty" jsonschema:"shell commands that say when remote work of a type is done, by type"`
	Offline  string                   `json:"offline,omitempty" jsonschema:"how long a service may give no answer before its work is given up, such as 10m, which holds if not set"`
}

// RemoteService is one service.
type RemoteService struct {
	URL      string `json:"url" jsonschema:"https, or http on this machine"`
	TokenEnv string `json:"tokenEnv,omitempty" jsonschema:"name of the environment variable that holds its token"`
}

// Usual is the name of the service that is meant where none is named, or empty.
func (r Remote) Usual() string {
	if r.Default != "" || len(r.Services) != 1 {
		return r.Default
	}
	for name := range r.Services {
		return name
	}
	return ""
}

// OfflineLimit is Offline as a duration.
func (r Remote) OfflineLimit() time.Duration { return duration(r.Offline, 10*time.Minute) }

// Teleport is how sessions are carried to other machines.
type Teleport struct {
	Enabled bool `json:"enabled" jsonschema:"sessions can be exported and imported; true if not set"`
	CwdSync bool `json:"cwdSync" jsonschema:"an exported session names its folder, and goes on there; true if not set"`
	EnvSync bool `json:"envSync" jsonschema:"an exported session holds the variables that are named; false if not set"`
}
