package mcpserver

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The input schemas are written out, not derived: they contain limits and defaults, and stay the same in every
// version of the libraries.
const (
	runSchema = `{"type":"object","additionalProperties":false,"properties":{
"command":{"type":"string","minLength":1,"description":"A command line for bash. Give this or args."},
"args":{"type":"array","items":{"type":"string"},"minItems":1,"description":"A program and its arguments, run without a shell. Give this or command."},
"cwd":{"type":"string","description":"The working directory. The default, and the base of a relative path, is the server's directory."},
"name":{"type":"string","maxLength":100,"description":"A short name to refer to the task by."},
"timeout_seconds":{"type":"number","exclusiveMinimum":0,"maximum":604800,"description":"Stop the task after this time. The default is no limit."},
"background":{"type":"boolean","default":true,"description":"true answers at once with the task_id. false answers when the command has ended, with its output; cancelling the call then stops the command."},
"wait_seconds":{"type":"number","minimum":0,"maximum":600,"default":0,"description":"Wait this long for the end before answering; the task continues in the background after that."},
"keep":{"type":"boolean","default":false,"description":"Keep the task running when this client disconnects."}}}`

	agentSchema = `{"type":"object","additionalProperties":false,"required":["prompt"],"properties":{
"prompt":{"type":"string","minLength":1,"description":"The work for the agent, which does not see your conversation."},
"cwd":{"type":"string","description":"The working directory. The default, and the base of a relative path, is the server's directory."},
"agent_type":{"type":"string","default":"general-purpose","description":"The type of agent. The error for an unknown one lists all."},
"model":{"type":"string","description":"sonnet, opus, haiku or a full model name. The default is that of the type."},
"max_turns":{"type":"integer","minimum":1,"maximum":10000,"description":"Stop the agent after this number of turns."},
"name":{"type":"string","maxLength":100,"description":"A short name to refer to the task by."},
"background":{"type":"boolean","default":true,"description":"true answers at once with the task_id. false answers when the agent has ended, with its answer; cancelling the call then stops the agent."},
"keep":{"type":"boolean","default":false,"description":"Keep the agent running when this client disconnects."}}}`

	listSchema = `{"type":"object","additionalProperties":false,"properties":{
"all":{"type":"boolean","default":false,"description":"Include ended tasks."}}}`

	outputSchema = `{"type":"object","additionalProperties":false,"properties":{
"task_id":{"type":"string","minLength":1,"description":"An ID, the unique beginning of one, or a name."},
"task_ids":{"type":"array","items":{"type":"string","minLength":1},"minItems":1,"maxItems":1,"description":"The same as task_id, in a list of one."},
"offset":{"type":"integer","minimum":0,"description":"Read from this byte on. Continue with next_offset of the answer. Without it, read the end."},
"tail_lines":{"type":"integer","minimum":1,"maximum":32000,"description":"Read this number of lines from the end. The default is 200."},
"max_bytes":{"type":"integer","minimum":4,"maximum":32000,"default":32000,"description":"Read at most this number of bytes."}}}`

	waitSchema = `{"type":"object","additionalProperties":false,"properties":{
"task_id":{"type":"string","minLength":1,"description":"One task. Give this or task_ids."},
"task_ids":{"type":"array","items":{"type":"string","minLength":1},"minItems":1,"maxItems":1000,"description":"IDs, unique beginnings of IDs, or names."},
"any":{"type":"boolean","default":false,"description":"Answer when one of them has ended, and list it first."},
"timeout_seconds":{"type":"number","minimum":0.001,"maximum":600,"default":45,"description":"Answer after this time at the latest. The tasks keep running."}}}`

	stopSchema = `{"type":"object","additionalProperties":false,"properties":{
"task_id":{"type":"string","minLength":1,"description":"One task. Give this or task_ids."},
"task_ids":{"type":"array","items":{"type":"string","minLength":1},"minItems":1,"maxItems":1000,"description":"IDs, unique beginnings of IDs, or names."},
"grace_seconds":{"type":"number","minimum":0,"maximum":600,"description":"Time for processes to exit before they are killed. The default is 2."}}}`
)

func (v *service) addTools() {
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)}
	works := &mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)}
	stops := &mcp.ToolAnnotations{DestructiveHint: new(true), IdempotentHint: true, OpenWorldHint: new(false)}
	tool := func(name, title, schema string, hints *mcp.ToolAnnotations, description string) *mcp.Tool {
		return &mcp.Tool{Name: name, Title: title, Description: description, InputSchema: json.RawMessage(schema),
			Annotations: hints}
	}
	// Clients that load tools on demand must load these at once: the model begins with them.
	early := func(t *mcp.Tool) *mcp.Tool {
		t.Meta = mcp.Meta{"anthropic/alwaysLoad": true}
		return t
	}
	add(v, early(tool("task_run", "Run a command", runSchema, works,
		"Run a shell command as a task, without input and without a terminal. task_output reads its output.")), (*server).run)
	add(v, early(tool("agent_run", "Run an agent", agentSchema, works,
		"Run an agent as a task: a model that works on the prompt with its own tools and gives one answer at the end.")),
		(*server).agent)
	add(v, tool("task_list", "List tasks", listSchema, reads,
		"List the tasks of this session, newest first: the live ones, or all."), (*server).list)
	add(v, tool("task_output", "Read output", outputSchema, reads,
		"Read the output of a task so far: its end, or from an offset on."), (*server).output)
	add(v, early(tool("task_wait", "Wait for tasks", waitSchema, reads,
		"Wait until tasks have ended and report how. Cancelling this call does not stop the tasks.")), (*server).await)
	add(v, tool("task_stop", "Stop tasks", stopSchema, stops,
		"Stop tasks with everything that they have started, and report what was done. Stopping an ended task changes nothing."),
		(*server).stop)
}

// schemaOf is the schema of an answer. No field in it is null, since strict clients warn about types that may be null.
func schemaOf[Out any]() *jsonschema.Schema {
	schema, err := jsonschema.For[Out](nil)
	if err != nil {
		panic(fmt.Sprintf("mcpserver: the answer of a tool has no schema: %v", err)) // unreachable: the types are fixed
	}
	withoutNull(schema)
	return schema
}

func withoutNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if others := slices.DeleteFunc(slices.Clone(s.Types), func(t string) bool { return t == "null" }); len(others) == 1 {
		s.Type, s.Types = others[0], nil
	}
	withoutNull(s.Items)
	for _, p := range s.Properties {
		withoutNull(p)
	}
}
