package control

// Commands are the commands with which a prompt may begin, as /NAME.
type Commands struct {
	Commands []Command `json:"commands"`
	Problems []string  `json:"problems"` // with files, including those that were not loaded
}

// Command is one command. With ShadowedBy or NotForPeople it cannot be called.
type Command struct {
	Name          string   `json:"name"`        // without the slash
	Kind          string   `json:"kind"`        // prompt, skill or program
	Description   string   `json:"description"` // description for the user
	ArgumentHint  string   `json:"argument_hint,omitempty"`
	Level         string   `json:"level"`            // project, user, plugin, built-in or server
	Source        string   `json:"source,omitempty"` // its file
	Model         string   `json:"model,omitempty"`
	Agent         string   `json:"agent,omitempty"`       // type of agent that executes it
	ShadowedBy    string   `json:"shadowed_by,omitempty"` // the command that has its name
	WaitsForTrust []string `json:"waits_for_trust,omitempty"`
	NotForPeople  bool     `json:"not_for_people,omitempty"`
	NotForModels  bool     `json:"not_for_models,omitempty"`
	Warnings      []string `json:"warnings,omitempty"`
}
