package subagent

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/drover-dev/drover/task"
)

// Definition is a sort of agent. The JSON names are those of agent definitions
// in the SDK and in the front matter of agent files.
type Definition struct {
	Name        string `json:"name"`
	DisplayName string `json:"displayName,omitempty"` // for people; empty: Name
	Description string `json:"description"`           // when to use it, for the model that delegates
	Prompt      string `json:"prompt"`                // system prompt

	// Tools are the names of the tools the agent may use. Nil means those of
	// the agent that asked for it; an empty list means none.
	Tools           []string `json:"tools"`
	DisallowedTools []string `json:"disallowedTools,omitempty"`
	Model           string   `json:"model,omitempty"`    // alias, name, or inherit; empty: inherit
	MaxTurns        int      `json:"maxTurns,omitempty"` // 0: as the asking agent
	Effort          string   `json:"effort,omitempty"`   // low to max, or a number; empty: the model's usual

	// What the agent begins with. The critical reminder is told to it again at
	// the start of every turn.
	Skills           []string `json:"skills,omitempty"`
	InitialPrompt    string   `json:"initialPrompt,omitempty"` // before the prompt of its first turn
	CriticalReminder string   `json:"criticalSystemReminder_EXPERIMENTAL,omitempty"`

	// Hooks and MCP servers of its own, in the form of the settings.
	Hooks      map[string]any `json:"hooks,omitempty"`
	MCPServers []any          `json:"mcpServers,omitempty"`

	OmitNotes      bool   `json:"omitClaudeMd,omitempty"`   // the notes of project and user are not told
	PermissionMode string `json:"permissionMode,omitempty"` // never widens that of the asking agent
	Background     *bool  `json:"background,omitempty"`     // nil: as the call says
	OnEnd          string `json:"onEnd,omitempty"`          // of its tasks: stop or reparent; empty: as whether somebody waits for it
	Isolation      string `json:"isolation,omitempty"`      // worktree; empty: none
	On             string `json:"on,omitempty"`             // a worker, a label of workers, or auto; empty: this machine
	Sandbox        string `json:"sandbox,omitempty"`        // best or required, of its commands; never weaker than the session's

	NoModel bool `json:"disable-model-invocation,omitempty"` // models are not offered it, and cannot start it

	// ACP makes it an agent of another vendor: a program that speaks the Agent Client Protocol, or one of its vendor.
	// Its own model and tools do the work; the prompt of the definition is told to it first. nil: it
	// is one of ours.
	ACP *ACP `json:"acp,omitempty"`

	Budget task.Budget `json:"budget,omitzero"` // of the agent and all below it; never more than what is left above it

	Source string `json:"source,omitempty"` // the file it is from; empty: built in
}

// ACP says how an agent of another vendor is started.
type ACP struct {
	Command string            `json:"command"` // found on the PATH; empty: it may not be started yet
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`  // $NAME stands for a variable of who starts it
	Mode    string            `json:"mode,omitempty"` // of its session; empty: its own choice
	// Protocol is the one that the program speaks: claude (stream-json of Claude Code), codex (its
	// app-server); empty: the Agent Client Protocol.
	Protocol string `json:"protocol,omitempty"`

	// What it needs beside that. Of programs that are known it comes from [Vendors].
	Login   string   `json:"login,omitempty"`   // the command that signs the user in
	Keys    []string `json:"keys,omitempty"`    // variables with credentials that it is given
	Folders []string `json:"folders,omitempty"` // with its credentials and state, below the home of the user
	Hosts   []string `json:"hosts,omitempty"`   // of its provider
}

// DefaultType is the agent that is meant when no type is named.
const DefaultType = "general-purpose"

//go:embed prompts/*.md
var prompts embed.FS

// Builtin returns the agents that are always there.
func Builtin() Catalog {
	return NewCatalog(
		Definition{
			Name:        DefaultType,
			Description: "Any work of several steps, with all your tools.",
			Prompt:      prompt("general-purpose"),
		},
		Definition{
			Name:        "explore",
			Description: "Finds and reads things in a code base quickly; changes nothing. Good to send several side by side.",
			Prompt:      prompt("explore"),
			Tools:       []string{"Read", "Glob", "Grep"},
			MaxTurns:    30,
		},
		Definition{
			Name:        "plan",
			Description: "Returns a plan for a change from the facts in its prompt. It has no tools.",
			Prompt:      prompt("plan"),
			Tools:       []string{},
			MaxTurns:    10,
		},
		Definition{
			Name:        "task",
			Description: "Runs tests, builds and linters, and reports what matters of their output.",
			Prompt:      prompt("task"),
			Tools:       []string{"Bash", "Read", "Glob", "Grep", "TaskOutput", "TaskStop"},
			MaxTurns:    30,
		},
		Definition{
			Name:        "rubber-duck",
			Description: "An independent critique of a plan or a design before it is carried out; changes nothing.",
			Prompt:      prompt("rubber-duck"),
			Tools:       reading(),
			MaxTurns:    20,
		},
		Definition{
			Name:        "code-review",
			Description: "Reviews a change for faults, risks and missing tests; changes nothing.",
			Prompt:      prompt("code-review"),
			Tools:       commanding(),
			MaxTurns:    40,
		},
		Definition{
			Name:        "research",
			Description: "Answers a question from many sources, here and on the web, with citations.",
			Prompt:      prompt("research"),
			Tools:       append(reading(), "WebFetch", "Agent(explore,general-purpose,research)", "TaskOutput", "TaskStop"),
			MaxTurns:    60,
		},
		Definition{
			Name:        "verification",
			Description: "Checks that finished work does what was asked: runs things, changes nothing, gives a verdict.",
			Prompt:      prompt("verification"),
			Tools:       commanding(),
			MaxTurns:    40,
		},
		Definition{
			Name:        "rem-agent",
			Description: "Writes what a session has taught, which its prompt must say, to the context board of later sessions.",
			Prompt:      prompt("rem-agent"),
			Tools:       []string{"context_board"},
			MaxTurns:    20,
			OmitNotes:   true,
		},
	)
}

func reading() []string    { return []string{"Read", "Glob", "Grep"} }
func commanding() []string { return append(reading(), "Bash", "TaskOutput", "TaskStop") }

func prompt(name string) string {
	text, err := prompts.ReadFile("prompts/" + name + ".md")
	if err != nil {
		panic(err) // the file is part of the program
	}
	return strings.TrimSpace(string(text))
}

// Catalog is a set of definitions. It is a value: nobody changes it.
type Catalog struct{ byName map[string]Definition }

// NewCatalog makes a catalog; of equal names the last counts.
func NewCatalog(defs ...Definition) Catalog {
	c := Catalog{byName: make(map[string]Definition, len(defs))}
	for _, d := range defs {
		c.byName[Normalize(d.Name)] = d
	}
	return c
}

// Normalize makes lower-case kebab of a name, so that spelling does not matter.
func Normalize(name string) string {
	return strings.Join(
		strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == ' ' || r == '_' || r == '-' }),
		"-",
	)
}

// Find returns the definition of a type; the empty type is [DefaultType].
func (c Catalog) Find(agentType string) (Definition, error) {
	if agentType == "" {
		agentType = DefaultType
	}
	d, ok := c.byName[Normalize(agentType)]
	if ok {
		return d, nil
	}
	unknown := &UnknownTypeError{Type: agentType, Known: c.Names()}
	for _, v := range Vendors() {
		if v.Name == Normalize(agentType) {
			unknown.Install = v.Install
		}
	}
	return Definition{}, unknown
}

// Names returns the names of all types, sorted.
func (c Catalog) Names() []string {
	names := make([]string, 0, len(c.byName))
	for _, d := range c.byName {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return names
}

// All returns all definitions, sorted by name.
func (c Catalog) All() []Definition {
	var defs []Definition
	for _, n := range c.Names() {
		defs = append(defs, c.byName[Normalize(n)])
	}
	return defs
}

// UnknownTypeError says that no agent has this name.
type UnknownTypeError struct {
	Type    string
	Known   []string
	Install string // how the program of another vendor's agent of this name is installed; empty: none has it
}

func (e *UnknownTypeError) Error() string {
	if e.Install != "" {
		return fmt.Sprintf("agent %s: its program is not on the PATH (%s)", e.Type, e.Install)
	}
	return fmt.Sprintf("unknown subagent_type: %s (known: %s)", e.Type, strings.Join(e.Known, ", "))
}

// Input is what an agent task is started with.
type Input struct {
	Type           string   `json:"agent_type"`
	Prompt         string   `json:"prompt"`
	Model          string   `json:"model,omitempty"`
	MaxTurns       int      `json:"max_turns,omitempty"`
	PermissionMode string   `json:"permission_mode,omitempty"`
	AllowedTools   []string `json:"allowed_tools,omitempty"`
	Isolation      string   `json:"isolation,omitempty"` // worktree; empty: as the definition says
	On             string   `json:"on,omitempty"`        // a worker or a label; empty: as the definition says
	Untracked      []string `json:"untracked,omitempty"` // patterns of files that travel there though git does not track them
	NoFolder       bool     `json:"no_folder,omitempty"` // nothing travels there
	Sync           bool     `json:"sync,omitempty"`      // the files of a folder without git travel there
}

// decode reads an [Input] and refuses what cannot work.
func decode(raw json.RawMessage) (Input, error) {
	var in Input
	if err := json.Unmarshal(raw, &in); err != nil {
		return in, fmt.Errorf("agent input: %w", err)
	}
	if strings.TrimSpace(in.Prompt) == "" {
		return in, fmt.Errorf("agent input: the prompt is empty")
	}
	if in.MaxTurns < 0 {
		return in, fmt.Errorf("agent input: max_turns is negative")
	}
	return in, nil
}
