// Package a2a is the Agent2Agent protocol, version 1.0, over JSON-RPC: its messages, and a client
// of an agent with a follower for each of its tasks.
//
// The messages follow the normative file specification/a2a.proto of the protocol, in the JSON
// of its section 5; fields that Drover neither reads nor writes are left out and ignored. A token is
// sent only to the origin of the agent card. A response of any size or form uses bounded memory.
//
// A [Follower] keeps the artifacts of its task. The package
// does not serve the protocol; frontend/a2aserver does.
package a2a

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Version is the version of the protocol, as header, card and interfaces have it (section 3.6).
const Version = "1.0"

// Names of HTTP that the protocol gives.
const (
	VersionHeader = "A2A-Version"
	CardPath      = "/.well-known/agent-card.json" // section 8.2
	JSONRPC       = "JSONRPC"                      // binding of an interface
	PushType      = "application/a2a+json"         // media type of a push notification, section 4.3.3
	// TokenHeader has the token of a push configuration, as the official libraries send it.
	TokenHeader = "X-A2A-Notification-Token"
)

// The methods of section 9.4.
const (
	SendMessage          = "SendMessage"
	SendStreamingMessage = "SendStreamingMessage"
	GetTask              = "GetTask"
	ListTasks            = "ListTasks"
	CancelTask           = "CancelTask"
	SubscribeToTask      = "SubscribeToTask"
	CreatePushConfig     = "CreateTaskPushNotificationConfig"
	GetPushConfig        = "GetTaskPushNotificationConfig"
	ListPushConfigs      = "ListTaskPushNotificationConfigs"
	DeletePushConfig     = "DeleteTaskPushNotificationConfig"
	GetExtendedCard      = "GetExtendedAgentCard"
)

// State is the state of a task.
type State string

// The states.
const (
	Submitted     State = "TASK_STATE_SUBMITTED"
	Working       State = "TASK_STATE_WORKING"
	Completed     State = "TASK_STATE_COMPLETED"
	Failed        State = "TASK_STATE_FAILED"
	Canceled      State = "TASK_STATE_CANCELED"
	Rejected      State = "TASK_STATE_REJECTED"
	InputRequired State = "TASK_STATE_INPUT_REQUIRED"
	AuthRequired  State = "TASK_STATE_AUTH_REQUIRED"
)

// Known reports whether the state is one of those.
func (s State) Known() bool {
	return s.Terminal() || s.Interrupted() || s == Submitted || s == Working
}

// Terminal reports whether no further change is possible.
func (s State) Terminal() bool {
	return slices.Contains([]State{Completed, Failed, Canceled, Rejected}, s)
}

// Interrupted reports whether the task waits for its client.
func (s State) Interrupted() bool { return s == InputRequired || s == AuthRequired }

// Roles of messages.
const (
	RoleUser  = "ROLE_USER"
	RoleAgent = "ROLE_AGENT"
)

// Task is a task with its state.
type Task struct {
	ID        string         `json:"id"`
	Context   string         `json:"contextId,omitempty"`
	Status    Status         `json:"status"`
	Artifacts []Artifact     `json:"artifacts,omitempty"`
	History   []Message      `json:"history,omitempty"`
	Metadata  map[string]any `json:"metadata,omitempty"`
}

// Status is the state of a task since a time.
type Status struct {
	State     State    `json:"state"`
	Message   *Message `json:"message,omitempty"`
	Timestamp *Time    `json:"timestamp,omitempty"`
}

// Message is one message to or from an agent.
type Message struct {
	ID         string         `json:"messageId"`
	Context    string         `json:"contextId,omitempty"`
	Task       string         `json:"taskId,omitempty"`
	Role       string         `json:"role"`
	Parts      []Part         `json:"parts"`
	Metadata   map[string]any `json:"metadata,omitempty"`
	References []string       `json:"referenceTaskIds,omitempty"`
}

// Part is a piece of content: exactly one of Text, Raw, URL and Data is set.
type Part struct {
	Text      *string         `json:"text,omitempty"`
	Raw       []byte          `json:"raw,omitempty"` // base64 in JSON
	URL       string          `json:"url,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	Filename  string          `json:"filename,omitempty"`
	MediaType string          `json:"mediaType,omitempty"`
}

// TextPart is a part of plain text.
func TextPart(text string) Part { return Part{Text: &text, MediaType: "text/plain"} }

// Artifact is an output of a task.
type Artifact struct {
	ID       string         `json:"artifactId"`
	Name     string         `json:"name,omitempty"`
	Parts    []Part         `json:"parts"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

// StatusUpdate tells of a new state of a task.
type StatusUpdate struct {
	Task    string `json:"taskId"`
	Context string `json:"contextId"`
	Status  Status `json:"status"`
}

// ArtifactUpdate tells of an artifact or, with Append, of more of one.
type ArtifactUpdate struct {
	Task     string   `json:"taskId"`
	Context  string   `json:"contextId"`
	Artifact Artifact `json:"artifact"`
	Append   bool     `json:"append,omitempty"`
	Last     bool     `json:"lastChunk,omitempty"`
}

// Event is one event of a stream, the answer to a message, or a push notification: exactly one field
// is set.
type Event struct {
	Task     *Task           `json:"task,omitempty"`
	Message  *Message        `json:"message,omitempty"`
	Status   *StatusUpdate   `json:"statusUpdate,omitempty"`
	Artifact *ArtifactUpdate `json:"artifactUpdate,omitempty"`
}

// SendRequest are the parameters of [SendMessage] and [SendStreamingMessage].
type SendRequest struct {
	Tenant        string         `json:"tenant,omitempty"`
	Message       *Message       `json:"message"`
	Configuration *Configuration `json:"configuration,omitempty"`
	Metadata      map[string]any `json:"metadata,omitempty"`
}

// Configuration says how a message is answered.
type Configuration struct {
	OutputModes []string    `json:"acceptedOutputModes,omitempty"`
	Push        *PushConfig `json:"taskPushNotificationConfig,omitempty"`
	History     *int        `json:"historyLength,omitempty"`
	Immediately bool        `json:"returnImmediately,omitempty"`
}

// TaskRequest are the parameters of [GetTask], [CancelTask] and [SubscribeToTask].
type TaskRequest struct {
	Tenant  string `json:"tenant,omitempty"`
	ID      string `json:"id"`
	History *int   `json:"historyLength,omitempty"` // of GetTask
}

// ListRequest are the parameters of [ListTasks].
type ListRequest struct {
	Tenant    string `json:"tenant,omitempty"`
	Context   string `json:"contextId,omitempty"`
	Status    State  `json:"status,omitempty"`
	PageSize  *int   `json:"pageSize,omitempty"` // 1 to 100; nil: 50
	PageToken string `json:"pageToken,omitempty"`
	History   *int   `json:"historyLength,omitempty"`
	After     *Time  `json:"statusTimestampAfter,omitempty"`
	Artifacts bool   `json:"includeArtifacts,omitempty"`
}

// List is the answer to [ListTasks].
type List struct {
	Tasks     []Task `json:"tasks"`
	Next      string `json:"nextPageToken"`
	PageSize  int    `json:"pageSize"`
	TotalSize int    `json:"totalSize"`
}

// PushConfig is where news of a task is sent. It is also the parameters of [CreatePushConfig].
type PushConfig struct {
	Tenant string `json:"tenant,omitempty"`
	ID     string `json:"id,omitempty"`
	Task   string `json:"taskId,omitempty"`
	URL    string `json:"url"`
	Token  string `json:"token,omitempty"`
	Auth   *Auth  `json:"authentication,omitempty"`
}

// Auth is the header Authorization of a push notification.
type Auth struct {
	Scheme      string `json:"scheme"`
	Credentials string `json:"credentials,omitempty"`
}

// PushRequest are the parameters of [GetPushConfig], [DeletePushConfig] and [ListPushConfigs].
type PushRequest struct {
	Tenant string `json:"tenant,omitempty"`
	Task   string `json:"taskId"`
	ID     string `json:"id,omitempty"`
}

// PushList is the answer to [ListPushConfigs].
type PushList struct {
	Configs []PushConfig `json:"configs"`
	Next    string       `json:"nextPageToken,omitempty"`
}

// Card describes an agent, and where it is reached.
type Card struct {
	Name         string                    `json:"name"`
	Description  string                    `json:"description"`
	Interfaces   []Interface               `json:"supportedInterfaces"`
	Version      string                    `json:"version"` // of the agent
	Docs         string                    `json:"documentationUrl,omitempty"`
	Capabilities Capabilities              `json:"capabilities"`
	Schemes      map[string]SecurityScheme `json:"securitySchemes,omitempty"`
	Requirements []SecurityRequirement     `json:"securityRequirements,omitempty"`
	InputModes   []string                  `json:"defaultInputModes"`
	OutputModes  []string                  `json:"defaultOutputModes"`
	Skills       []Skill                   `json:"skills"`
}

// Interface is one way to reach an agent.
type Interface struct {
	URL     string `json:"url"`
	Binding string `json:"protocolBinding"` // such as JSONRPC
	Tenant  string `json:"tenant,omitempty"`
	Version string `json:"protocolVersion"` // such as 1.0
}

// Capabilities are optional parts of the protocol that an agent has.
type Capabilities struct {
	Streaming    bool        `json:"streaming,omitempty"`
	Push         bool        `json:"pushNotifications,omitempty"`
	Extensions   []Extension `json:"extensions,omitempty"`
	ExtendedCard bool        `json:"extendedAgentCard,omitempty"`
}

// Extension is an extension of the protocol.
type Extension struct {
	URI      string `json:"uri"`
	Required bool   `json:"required,omitempty"` // clients that do not know it are refused
}

// SecurityScheme is a way to authenticate. Drover offers one of HTTP.
type SecurityScheme struct {
	HTTP *HTTPScheme `json:"httpAuthSecurityScheme,omitempty"`
}

// HTTPScheme is authentication by the header Authorization.
type HTTPScheme struct {
	Description string `json:"description,omitempty"`
	Scheme      string `json:"scheme"`
}

// SecurityRequirement names schemes that are used together.
type SecurityRequirement struct {
	Schemes map[string]Scopes `json:"schemes"`
}

// Scopes of a scheme.
type Scopes struct {
	List []string `json:"list,omitempty"`
}

// Skill is something that an agent can do.
type Skill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
}

// Codes of errors, of section 5.4 and of JSON-RPC.
const (
	CodeParse          = -32700
	CodeRequest        = -32600
	CodeMethod         = -32601
	CodeParams         = -32602
	CodeInternal       = -32603
	CodeTaskNotFound   = -32001
	CodeNotCancelable  = -32002
	CodeNoPush         = -32003
	CodeUnsupported    = -32004
	CodeContentType    = -32005
	CodeInvalidAnswer  = -32006
	CodeNoExtendedCard = -32007
	CodeNeedsExtension = -32008
	CodeVersion        = -32009
)

// Error is an error of JSON-RPC.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Time is a time as the protocol writes it: UTC, to the millisecond.
type Time struct{ time.Time }

// At is a time of the protocol.
func At(t time.Time) *Time { return &Time{t.UTC().Truncate(time.Millisecond)} }

// MarshalJSON implements [json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Format("2006-01-02T15:04:05.000Z") + `"`), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Time) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	t.Time = at
	return err
}

// Text is the parts as text: texts as they are, data as JSON, files by their names.
func Text(parts []Part) string {
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.Text != nil:
			b.WriteString(*p.Text)
			continue
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "\n"):
			b.WriteByte('\n')
		}
		switch {
		case len(p.Data) > 0:
			b.Write(p.Data)
		case p.URL != "":
			fmt.Fprintf(&b, "[file %s at %s]", p.Filename, p.URL)
		default:
			fmt.Fprintf(&b, "[file %s, %s, %d bytes]", p.Filename, p.MediaType, len(p.Raw))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
