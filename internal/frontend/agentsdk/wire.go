package agentsdk

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/task"
)

// head is the type of a line of type system, and of a result.
type head struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
}

// system is the head of a line of type system.
func system(subtype string) head { return head{"system", subtype} }

// stamp is in every line.
type stamp struct {
	UUID    string  `json:"uuid"`
	Session task.ID `json:"session_id"`
}

// origin is the source of a line. The lines of the main agent have a null parent.
type origin struct {
	ParentToolUseID *string `json:"parent_tool_use_id"`
	AgentID         task.ID `json:"agent_id,omitempty"`
	SubagentType    string  `json:"subagent_type,omitempty"`
	TaskDescription string  `json:"task_description,omitempty"`
}

type initLine struct {
	head
	Cwd            string      `json:"cwd"`
	Tools          []string    `json:"tools"`
	MCPServers     []MCPServer `json:"mcp_servers"`
	Model          string      `json:"model"`
	PermissionMode string      `json:"permissionMode"`
	SlashCommands  []string    `json:"slash_commands"`
	Agents         []string    `json:"agents"`
	Skills         []string    `json:"skills"`
	Plugins        []any       `json:"plugins"`
	OutputStyle    string      `json:"output_style"`
	WireVersion    string      `json:"claude_code_version"` // the wire's word for the version of the program
	Version        string      `json:"drover_version"`
	Capabilities   []string    `json:"capabilities"`
	KeySource      string      `json:"apiKeySource"`
	Effort         string      `json:"effort,omitempty"`
	stamp
}

// MCPServer is an MCP server in system/init.
type MCPServer struct {
	Name   string `json:"name"`
	Status string `json:"status"` // connected, pending or failed
}

type assistantLine struct {
	Type    string  `json:"type"`
	Message message `json:"message"`
	origin
	Timestamp time.Time `json:"timestamp"`
	stamp
}

// message is an API message with one block or none.
type message struct {
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	Role         string  `json:"role"`
	Model        string  `json:"model"`
	Content      []any   `json:"content"`
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        usage   `json:"usage"`
	nothing
}

// nothing are the fields of an API message that are always null here.
type nothing struct {
	StopDetails *struct{} `json:"stop_details"`
	Container   *struct{} `json:"container"`
	Context     *struct{} `json:"context_management"`
	Diagnostics *struct{} `json:"diagnostics"`
}

// apiBlock is a block in the form of an API message.
func apiBlock(b agent.Block) any {
	switch b.Type {
	case "text":
		return map[string]any{"type": b.Type, "text": b.Text, "citations": nil}
	case "thinking":
		return map[string]any{"type": b.Type, "thinking": b.Thinking, "signature": b.Signature}
	}
	return b
}

// usage is a usage in the form of an API message. Features that Drover does not use are 0 or empty.
type usage struct {
	agent.Usage
	CacheCreation cacheCreation  `json:"cache_creation"`
	OutputDetails map[string]int `json:"output_tokens_details"`
	ServerTools   map[string]int `json:"server_tool_use"`
	Tier          string         `json:"service_tier"`
	Speed         string         `json:"speed"`
	Geo           string         `json:"inference_geo"`
	Iterations    []any          `json:"iterations"`
	Credit        *struct{}      `json:"fallback_credit"`
}

// cacheCreation are the writes to the provider's cache by lifetime.
type cacheCreation struct {
	Hour    int64 `json:"ephemeral_1h_input_tokens"`
	Minutes int64 `json:"ephemeral_5m_input_tokens"`
}

// usageOf returns a usage in the form of an API message.
func usageOf(u agent.Usage) usage {
	written := cacheCreation{Hour: u.HourWriteTokens, Minutes: u.CacheWriteTokens - u.HourWriteTokens}
	u.HourWriteTokens = 0 // written has it
	return usage{Usage: u, CacheCreation: written,
		OutputDetails: map[string]int{"thinking_tokens": 0},
		ServerTools:   map[string]int{"web_search_requests": 0, "web_fetch_requests": 0}, Tier: "standard", Speed: "standard",
		Iterations: []any{}}
}

type userLine struct {
	Type          string          `json:"type"`
	Message       agent.Message   `json:"message"`
	ToolUseResult json.RawMessage `json:"tool_use_result,omitempty"`
	Synthetic     bool            `json:"isSynthetic,omitempty"`
	origin
	Timestamp time.Time `json:"timestamp"`
	stamp
}

type partLine struct {
	Type  string         `json:"type"`
	Event map[string]any `json:"event"`
	origin
	stamp
}

type retryLine struct {
	head
	Attempt int    `json:"attempt"` // 0: the call waits before it is made
	Most    int    `json:"max_retries"`
	DelayMS int64  `json:"retry_delay_ms"`
	Status  *int   `json:"error_status"` // of HTTP; null: no answer, or a good one that broke off
	Error   string `json:"error"`        // a word of the wire
	Text    string `json:"error_message"`
	origin
	stamp
}

// informationalLine is a message for people; the tag is for programs.
type informationalLine struct {
	head
	Level   string `json:"level"`
	Content string `json:"content"`
	Tag     string `json:"tag"`
	From    string `json:"from_model,omitempty"`
	To      string `json:"to_model,omitempty"`
	origin
	stamp
}

// hookLine is the begin of a hook, and the head of its end.
type hookLine struct {
	head
	ID    string `json:"hook_id"`
	Name  string `json:"hook_name"`
	Event string `json:"hook_event"`
	stamp
}

type hookDoneLine struct {
	hookLine
	Output  string `json:"output"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	Code    *int   `json:"exit_code,omitempty"`
	Outcome string `json:"outcome"`
}

// discardedLine revokes the stream_event lines of the current reply.
type discardedLine struct {
	head
	origin
	stamp
}

// statusLine is the upkeep of the main agent's conversation, null for none, or a change of its permission mode.
type statusLine struct {
	head
	Status *string `json:"status"`
	Mode   string  `json:"permissionMode,omitempty"`
	stamp
}

type compactLine struct {
	head
	Compact compaction `json:"compact_metadata"`
	stamp
}

type compaction struct {
	Trigger string `json:"trigger"`
	Before  int64  `json:"pre_tokens"`
}

type startedLine struct {
	head
	Task         task.ID    `json:"task_id"`
	Run          task.RunID `json:"run_id"`
	ToolUseID    string     `json:"tool_use_id,omitempty"`
	Kind         task.Kind  `json:"task_type"`
	SubagentType string     `json:"subagent_type,omitempty"`
	Description  string     `json:"description"`
	Backgrounded bool       `json:"is_backgrounded"`
	Depth        int        `json:"spawn_depth"`
	Workflow     string     `json:"workflow_name,omitempty"`
	Parent       task.ID    `json:"parent_task_id,omitempty"`
	Prompt       string     `json:"prompt,omitempty"`
	stamp
}

type progressLine struct {
	head
	Task         task.ID    `json:"task_id"`
	Run          task.RunID `json:"run_id"`
	ToolUseID    string     `json:"tool_use_id,omitempty"`
	SubagentType string     `json:"subagent_type,omitempty"`
	Description  string     `json:"description"`
	Usage        taskUsage  `json:"usage"`
	LastTool     string     `json:"last_tool_name"`
	Summary      string     `json:"summary,omitempty"`

	Workflow []workflowStep `json:"workflow_progress,omitempty"` // of a workflow: all its steps
	stamp
}

type taskUsage struct {
	Tokens     int64 `json:"total_tokens"`
	ToolUses   int   `json:"tool_uses"`
	DurationMS int64 `json:"duration_ms"`
}

type updatedLine struct {
	head
	Task  task.ID    `json:"task_id"`
	Run   task.RunID `json:"run_id"`
	Patch patch      `json:"patch"`
	stamp
}

type patch struct {
	Status       string `json:"status,omitempty"`
	EndTime      *int64 `json:"end_time,omitempty"` // milliseconds since 1970
	Error        string `json:"error,omitempty"`
	Backgrounded bool   `json:"is_backgrounded,omitempty"`
}

type notificationLine struct {
	head
	Task       task.ID     `json:"task_id"`
	Run        task.RunID  `json:"run_id"`
	ToolUseID  string      `json:"tool_use_id,omitempty"`
	Status     string      `json:"status"`
	Reason     string      `json:"reason,omitempty"`
	OutputFile string      `json:"output_file"`
	Summary    string      `json:"summary"`
	IsReport   bool        `json:"summary_is_report,omitempty"`
	Usage      *taskUsage  `json:"usage,omitempty"`
	ExitCode   *int        `json:"exit_code,omitempty"`
	Cause      *task.Cause `json:"cause,omitempty"`
	stamp
}

type backgroundLine struct {
	head
	Tasks []backgroundTask `json:"tasks"`
	stamp
}

type backgroundTask struct {
	Task         task.ID    `json:"task_id"`
	Run          task.RunID `json:"run_id"`
	Kind         task.Kind  `json:"task_type"`
	SubagentType string     `json:"subagent_type,omitempty"`
	Description  string     `json:"description"`
	Parent       task.ID    `json:"parent_task_id,omitempty"`
}

type resultLine struct {
	head
	IsError        bool                   `json:"is_error"`
	Result         *string                `json:"result,omitempty"`
	EmptyAnswer    bool                   `json:"empty_answer,omitempty"`
	Structured     json.RawMessage        `json:"structured_output,omitempty"`
	Errors         []string               `json:"errors,omitempty"`
	Turns          int                    `json:"num_turns"`
	DurationMS     int64                  `json:"duration_ms"`
	APIMS          int64                  `json:"duration_api_ms"`
	StopReason     *string                `json:"stop_reason"`
	TerminalReason string                 `json:"terminal_reason"`
	Cost           float64                `json:"total_cost_usd"`             // of this run
	SessionCost    *float64               `json:"session_cost_usd,omitempty"` // of all runs
	CostPartial    bool                   `json:"total_cost_is_partial,omitempty"`
	Usage          usage                  `json:"usage"`
	ModelUsage     map[string]*modelUsage `json:"modelUsage"`
	Denials        []agent.Denial         `json:"permission_denials"`
	Index          int                    `json:"result_index"`
	Origin         *resultOrigin          `json:"origin,omitempty"`
	Stats          stats                  `json:"subagent_stats"`
	stamp

	answer string // of failed turns too
}

type resultOrigin struct {
	Kind string `json:"kind"`
}

type modelUsage struct {
	Input      int64   `json:"inputTokens"`
	Output     int64   `json:"outputTokens"`
	CacheRead  int64   `json:"cacheReadInputTokens"`
	CacheWrite int64   `json:"cacheCreationInputTokens"`
	WebSearch  int64   `json:"webSearchRequests"`
	Cost       float64 `json:"costUSD"`
	Partial    bool    `json:"cost_is_partial,omitempty"` // the price of some calls is not known
	Window     int64   `json:"contextWindow"`             // 0: not known
	Most       int64   `json:"maxOutputTokens"`           // 0: not known
}

// stats counts runs of agents that began under this stream.
type stats struct {
	Spawned   int                 `json:"spawned"`
	Completed int                 `json:"completed"`
	Failed    int                 `json:"failed"`
	Killed    map[task.Reason]int `json:"killed"`
	ByType    map[string]int      `json:"by_type"`
}

// patchStatus is the word of task_updated for the state of a run.
func patchStatus(r task.Record) string {
	if r.Paused && !r.Status.Terminal() {
		return "paused"
	}
	return string(r.Status)
}

// notificationStatus is the word of task_notification for the end of a run.
func notificationStatus(s task.Status) string {
	if s == task.Killed {
		return "stopped"
	}
	return string(s)
}

// notificationReason is the only reason that the wire has a word for.
func notificationReason(c *task.Cause) string {
	if c != nil && c.Reason == task.ReasonHostLost {
		return "worker_restart"
	}
	return ""
}

// resultWords are the subtype and the terminal reason of a turn's result. Limits without a word of the wire keep ours.
func resultWords(r agent.TurnResult, err error, inTools bool) (subtype, terminal string) {
	const during = "error_during_execution"
	limit, stopped := (*agent.LimitError)(nil), (*agent.StopError)(nil)
	switch {
	case err == nil && r.Reason == "gate_end":
		return "success", "hook_stopped"
	case err == nil:
		return "success", "completed"
	case r.Reason == "blocked":
		return during, "hook_stopped"
	case r.Reason == "refused":
		return during, "turn_setup_failed"
	case r.Reason == "interrupted" && inTools:
		return during, "aborted_tools"
	case r.Reason == "interrupted":
		return during, "aborted_streaming"
	case r.Reason == agent.StructuredLimit:
		return "error_max_structured_output_retries", "structured_output_retry_exhausted"
	case r.Reason == "max_turns" || r.Reason == "max_budget_usd":
		return "error_" + r.Reason, r.Reason
	case errors.As(err, &limit):
		return during, limit.Limit
	case errors.As(err, &stopped):
		return during, stopped.Reason
	}
	return during, "model_error"
}

// retryWord is the wire's word for the failure of a call of a model.
func retryWord(kind string) string {
	switch kind {
	case "rate_limit", "overloaded", "server_error":
		return kind
	}
	return "unknown"
}

// compactTrigger is the word of compact_boundary for the reason of a compaction.
func compactTrigger(ours string) string {
	if ours == "manual" {
		return ours
	}
	return "auto"
}

// outcome is the end of a run in a few words.
func outcome(r task.Record) string { return excerpt.Line(r.Outcome(), 400) }

// describe is the description of a task, or another text that names it.
func describe(r task.Record) string { return cmp.Or(r.Description, r.Command, r.Name, string(r.ID)) }
