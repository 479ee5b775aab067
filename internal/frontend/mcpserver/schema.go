package mcpserver

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The input schemas are written out, not derived: limits and defaults belong
// to what a client is told, and the bytes are the same in every version of the
// libraries.
const (
	runSchema = `{"type":"object","additionalProperties":false,"properties":{
"command":{"type":"string","minLength":1,"description":"A line for bash. Give this or args."},
"args":{"type":"array","items":{"type":"string"},"minItems":1,"description":"A program and its arguments, run without a shell. Give this or command."},
"cwd":{"type":"string","description":"Where it runs; the server's folder if absent. A relative path starts there."},
"name":{"type":"string","maxLength":100,"description":"A short name to refer to the task by."},
"timeout_seconds":{"type":"number","exclusiveMinimum":0,"maximum":604800,"description":"The task is ended after this time. No limit if absent."},
"background":{"type":"boolean","default":true,"description":"true answers at once with the task_id. false answers when the command has ended, with its output; cancelling the call then stops the command."},
"wait_seconds":{"type":"number","minimum":0,"maximum":600,"default":0,"description":"Wait this long for the end before answering; a task that has not ended by then goes on in the background."},
"keep":{"type":"boolean","default":false,"description":"Let the task go on when this client disconnects."}}}`

	agentSchema = `{"type":"object","additionalProperties":false,"required":["prompt"],"properties":{
"prompt":{"type":"string","minLength":1,"description":"What the agent is to do. It knows nothing else of your conversation."},
"cwd":{"type":"string","description":"The folder that it works in; the server's folder if absent. A relative path starts there."},
"agent_type":{"type":"string","default":"general-purpose","description":"The kind of agent. An unknown one is answered with those there are."},
"model":{"type":"string","description":"sonnet, opus, haiku or a full model name. The kind's own if absent."},
"max_turns":{"type":"integer","minimum":1,"maximum":10000,"description":"The agent is ended after so many turns."},
"name":{"type":"string","maxLength":100,"description":"A short name to refer to the task by."},
"background":{"type":"boolean","default":true,"description":"true answers at once with the task_id. false answers when the agent has ended, with its answer; cancelling the call then stops the agent."},
"keep":{"type":"boolean","default":false,"description":"Let the agent go on when this client disconnects."}}}`

	listSchema = `{"type":"object","additionalProperties":false,"properties":{
"all":{"type":"boolean","default":false,"description":"Tasks that have ended too."}}}`

	outputSchema = `{"type":"object","additionalProperties":false,"properties":{
"task_id":{"type":"string","minLength":1,"description":"An ID, the unique beginning of one, or a name."},
"task_ids":{"type":"array","items":{"type":"string","minLength":1},"minItems":1,"maxItems":1,"description":"The same as task_id, in a list of one."},
"offset":{"type":"integer","minimum":0,"description":"Read from this byte on; next_offset of an answer is where to go on. Without it, the end is read."},
"tail_lines":{"type":"integer","minimum":1,"maximum":32000,"description":"Read so many lines from the end; 200 if absent."},
"max_bytes":{"type":"integer","minimum":4,"maximum":32000,"default":32000,"description":"Read at most so much."}}}`

	waitSchema = `{"type":"object","additionalProperties":false,"properties":{
"task_id":{"type":"string","minLength":1,"description":"One task. Give this or task_ids."},
"task_ids":{"type":"array","items":{"type":"string","minLength":1},"minItems":1,"maxItems":1000,"description":"IDs, unique beginnings of IDs, or names."},
"any":{"type":"boolean","default":false,"description":"Answer when the first of them has ended, which then comes first."},
"timeout_seconds":{"type":"number","minimum":0.001,"maximum":600,"default":45,"description":"Answer after this time at the latest. The tasks go on."}}}`

	stopSchema = `{"type":"object","additionalProperties":false,"properties":{
"task_id":{"type":"string","minLength":1,"description":"One task. Give this or task_ids."},
"task_ids":{"type":"array","items":{"type":"string","minLength":1},"minItems":1,"maxItems":1000,"description":"IDs, unique beginnings of IDs, or names."},
"grace_seconds":{"type":"number","minimum":0,"maximum":600,"description":"How long processes may take to end by themselves before they are killed; 2 if absent."}}}`
)

func (v *service) addTools() {
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)}
	works := &mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)}
	stops := &mcp.ToolAnnotations{DestructiveHint: new(true), IdempotentHint: true, OpenWorldHint: new(false)}
	tool := func(name, title, schema string, hints *mcp.ToolAnnotations, description string) *mcp.Tool {
		return &mcp.Tool{
			Name:        name,
			Title:       title,
			Description: description,
			InputSchema: json.RawMessage(schema),
			Annotations: hints,
		}
	}
	// Clients that load tools late would leave the model without those that it begins with.
	early := func(t *mcp.Tool) *mcp.Tool {
		t.Meta = mcp.Meta{"anthropic/alwaysLoad": true}
		return t
	}
	add(v, early(tool(
		"task_run",
		"Run a command",
		runSchema,
		works,
		"Run a shell command as a task. It gets no input and no terminal. Its output goes to a file that task_output reads.",
	)), (*server).run)
	add(v, early(tool(
		"agent_run",
		"Run an agent",
		agentSchema,
		works,
		"Run an agent as a task: a model that works on the prompt with tools of its own and gives one answer at the end.",
	)), (*server).agent)
	add(v, tool("task_list", "List tasks", listSchema, reads,
		"List the tasks of this session, newest first: those that are alive, or all."), (*server).list)
	add(v, tool("task_output", "Read output", outputSchema, reads,
		"Read what a task has printed so far: its end, or from an offset."), (*server).output)
	add(v, early(tool("task_wait", "Wait for tasks", waitSchema, reads,
		"Wait until tasks have ended and tell how. Cancelling this call stops no task.")), (*server).await)
	add(v, tool(
		"task_stop",
		"Stop tasks",
		stopSchema,
		stops,
		"Stop tasks with everything they have started, and tell what was done. Stopping what has ended changes nothing.",
	), (*server).stop)
}

// schemaOf is the schema of an answer. A list is never null in it, and what is absent is
// left out: strict clients warn of types that may be null.
func schemaOf[Out any]() *jsonschema.Schema {
	schema, err := jsonschema.For[Out](nil)
	if err != nil {
		panic(fmt.Sprintf("mcpserver: the answer of a tool has no schema: %v", err)) // a fault of this package
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
