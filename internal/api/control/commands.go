package control

// Commands are what a prompt may begin with, as /NAME.
type Commands struct {
	Commands []Command `json:"commands"`
	Problems []string  `json:"problems"` // with files, those that were not loaded included
}

// Command is one of them. With ShadowedBy or NotForPeople it cannot be called.
type Command struct {
	Name          string   `json:"name"`        // without the slash
	Kind          string   `json:"kind"`        // prompt, skill or program
	Description   string   `json:"description"` // for whoever chooses one
	ArgumentHint  string   `json:"argument_hint,omitempty"`
	Level         string   `json:"level"`            // project, user, plugin, built-in or server
	Source        string   `json:"source,omitempty"` // its file
	Model         string   `json:"model,omitempty"`
	Agent         string   `json:"agent,omitempty"`       // the type of agent that does the work
	ShadowedBy    string   `json:"shadowed_by,omitempty"` // what has its name
	WaitsForTrust []string `json:"waits_for_trust,omitempty"`
	NotForPeople  bool     `json:"not_for_people,omitempty"`
	NotForModels  bool     `json:"not_for_models,omitempty"`
	Warnings      []string `json:"warnings,omitempty"`
}
