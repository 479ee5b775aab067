package todotools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/project/todo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hooks are functions; nil agrees.
type hooks struct{ created, completed func(todo.Item) error }

func (h hooks) Created(_ context.Context, it todo.Item) error {
	if h.created == nil {
		return nil
	}
	return h.created(it)
}

func (h hooks) Completed(_ context.Context, it todo.Item) error {
	if h.completed == nil {
		return nil
	}
	return h.completed(it)
}

func config(t *testing.T) Config {
	t.Helper()
	return Config{Store: todo.At(filepath.Join(t.TempDir(), "list"), false), Caller: "main", Main: true}
}

func call(t *testing.T, c Config, name, input string) agent.Output {
	t.Helper()
	for _, tool := range New(c) {
		if tool.Spec().Name == name {
			out, err := tool.Call(t.Context(), agent.Call{Name: name, Input: json.RawMessage(input)})
			if err != nil {
				t.Fatalf("%s(%s): %v", name, input, err)
			}
			return out
		}
	}
	t.Fatalf("no tool %s", name)
	return agent.Output{}
}

// ok is a call that must succeed; it returns the text and the structured result.
func ok(t *testing.T, c Config, name, input string) (string, string) {
	t.Helper()
	out := call(t, c, name, input)
	if out.IsError {
		t.Fatalf("%s(%s): %s", name, input, out.Text)
	}
	data, err := json.Marshal(out.Structured)
	if err != nil {
		t.Fatal(err)
	}
	return out.Text, string(data)
}

func refused(t *testing.T, c Config, name, input, want string) {
	t.Helper()
	if out := call(t, c, name, input); !out.IsError || !strings.Contains(out.Text, want) ||
		!strings.HasPrefix(out.Text, name+": ") {
		t.Errorf("%s(%s) = %v %q, want %q", name, input, out.IsError, out.Text, want)
	}
}

func item(t *testing.T, c Config, id todo.ID) (todo.Item, bool) {
	t.Helper()
	l, err := c.Store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l.Get(id)
}

// TestWire has the results as clients of the protocol know them.
func TestWire(t *testing.T) {
	c := config(t)
	for _, step := range []struct{ name, in, want string }{
		{"TaskList", `{}`, `{"tasks":[]}`},
		{"TaskCreate", `{"subject":"A","description":"do a","activeForm":"Doing a","metadata":{"k":[1]}}`,
			`{"task":{"id":"1","subject":"A","description":"do a"}}`},
		{"TaskCreate", `{"subject":"B","description":""}`, `{"task":{"id":"2","subject":"B","description":""}}`},
		{"TaskUpdate", `{"taskId":"1","status":"in_progress","addBlocks":["2"],"metadata":{"k":null,"l":2}}`,
			`{"success":true,"taskId":"1","updatedFields":["status","owner","metadata","blocks"],"statusChange":{` +
				`"from":"pending","to":"in_progress"}}`},
		{"TaskUpdate", `{"taskId":"#1","status":"in_progress"}`, `{"success":true,"taskId":"1","updatedFields":[]}`},
		{"TaskGet", `{"taskId":"1"}`,
			`{"task":{"id":"1","subject":"A","description":"do a","status":"in_progress","blocks":["2"],"blockedBy":[]}}`},
		{"TaskGet", `{"taskId":"2"}`, `{"task":{"id":"2","subject":"B","description":"","status":"pending","blocks":[],` +
			`"blockedBy":["1"]}}`},
		{"TaskGet", `{"taskId":"3"}`, `{"task":null}`},
		{"TaskList", `{}`,
			`{"tasks":[{"id":"1","subject":"A","status":"in_progress","owner":"main","blockedBy":[]},{"id":"2","subject":"B",` +
				`"status":"pending","blockedBy":["1"]}]}`},
		{"TaskUpdate", `{"taskId":"1","status":"completed","activeForm":"x"}`,
			`{"success":true,"taskId":"1","updatedFields":["activeForm","status"],"statusChange":{"from":"in_progress",` +
				`"to":"completed"}}`},
		{"TaskList", `{}`,
			`{"tasks":[{"id":"1","subject":"A","status":"completed","owner":"main","blockedBy":[]},{"id":"2","subject":"B",` +
				`"status":"pending","blockedBy":[]}]}`},
		{"TaskUpdate", `{"taskId":"2","status":"deleted","subject":"ignored"}`,
			`{"success":true,"taskId":"2","updatedFields":["deleted"],"statusChange":{"from":"pending","to":"deleted"}}`},
		{"TaskCreate", `{"subject":"C","description":"c"}`, `{"task":{"id":"3","subject":"C","description":"c"}}`},
		{"TaskUpdate", `{"taskId":"3","addBlockedBy":["1"],"subject":"CC","description":"cc","owner":"ann"}`,
			`{"success":true,"taskId":"3","updatedFields":["subject","description","owner","blockedBy"]}`},
	} {
		if _, got := ok(t, c, step.name, step.in); got != step.want {
			t.Errorf("%s(%s)\n got %s\nwant %s", step.name, step.in, got, step.want)
		}
	}
	out := call(t, c, "TaskUpdate", `{"taskId":"9","status":"completed"}`)
	if got, _ := json.Marshal(out.Structured); !out.IsError ||
		string(got) != `{"success":false,"taskId":"9","updatedFields":[],"error":"update to-do: to-do #9: no such to-do"}` {
		t.Errorf("an unknown one: %v %s", out.IsError, got)
	}
}

func TestRefused(t *testing.T) {
	c := config(t)
	ok(t, c, "TaskCreate", `{"subject":"A","description":"a"}`)
	ok(t, c, "TaskCreate", `{"subject":"B","description":"b"}`)
	ok(t, c, "TaskUpdate", `{"taskId":"2","addBlockedBy":["1"]}`)
	for _, r := range []struct{ name, in, want string }{
		{"TaskCreate", `{"subject":"A"}`, `field "description" is missing`},
		{"TaskCreate", `{"subject":" ","description":"d"}`, `field "subject" is empty`},
		{"TaskCreate", `{"subject":"A","description":"d","status":"completed"}`, `unknown field "status"`},
		{"TaskCreate", `{"subject":"A","description":"d","metadata":[1]}`, `field "metadata" must be an object`},
		{"TaskCreate", `{"subject":"A\nB","description":"d"}`, `not one line`},
		{"TaskGet", `{}`, `field "taskId" is missing`},
		{"TaskGet", `{"taskId":"../1"}`, `field "taskId": "../1" is not the number of a to-do`},
		{"TaskList", `{"all":true}`, `unknown field "all"`},
		{"TaskUpdate", `{"taskId":1}`, `field "taskId" must be a string`},
		{"TaskUpdate", `{"taskId":"1","status":"done"}`,
			`field "status" must be pending, in_progress, completed or deleted, not "done"`},
		{"TaskUpdate", `{"taskId":"1","addBlocks":["x"]}`, `field "addBlocks": "x" is not the number of a to-do`},
		{"TaskUpdate", `{"taskId":"1","addBlocks":["9"]}`, `to-do #9: no such to-do`},
		{"TaskUpdate", `{"taskId":"1","addBlockedBy":["1"]}`, `circle: #1 waits for #1`},
		{"TaskUpdate", `{"taskId":"1","addBlockedBy":["2"]}`, `circle: #1 waits for #2 waits for #1`},
		{"TaskUpdate", `{"taskId":"9","status":"deleted"}`, `to-do #9: no such to-do`},
	} {
		refused(t, c, r.name, r.in, r.want)
	}
	if it, _ := item(t, c, 1); it.Revision != 1 {
		t.Errorf("what was refused has changed %+v", it)
	}
}

func TestMarks(t *testing.T) {
	want := map[string]bool{"TaskCreate": false, "TaskGet": true, "TaskList": true, "TaskUpdate": false}
	for _, tool := range New(config(t)) {
		spec := tool.Spec()
		reads, known := want[spec.Name]
		if !known || tool.(agent.ReadOnly).ReadOnly() != reads || tool.(agent.Parallel).Parallel() != reads {
			t.Errorf("%s is marked wrongly", spec.Name)
		}
		var schema struct {
			Properties map[string]any
			Additional *bool `json:"additionalProperties"`
		}
		if err := json.Unmarshal(spec.InputSchema, &schema); err != nil || schema.Additional == nil || *schema.Additional ||
			spec.Description == "" {
			t.Errorf("%s: schema %s, %v", spec.Name, spec.InputSchema, err)
		}
		for name := range schema.Properties { // what is declared is known
			_, err := tool.Call(t.Context(), agent.Call{Input: json.RawMessage(`{"` + name + `":false}`)})
			if err != nil {
				t.Error(err)
			}
			if out := call(t, config(t), spec.Name, `{"`+name+`":false}`); strings.Contains(out.Text, "unknown field") {
				t.Errorf("%s: %s", spec.Name, out.Text)
			}
		}
	}
}

// TestCreatedHook: what a hook refuses is not there, and its words are told.
func TestCreatedHook(t *testing.T) {
	c := config(t)
	var seen todo.Item
	c.Hooks = hooks{created: func(it todo.Item) error {
		seen = it
		if _, there := item(t, c, it.ID); !there {
			t.Error("the hook runs before the to-do is there")
		}
		// The lock is not held: others go on.
		if _, err := c.Store.Create(t.Context(), todo.Draft{Subject: "other"}); err != nil {
			t.Error(err)
		}
		return errors.New("name a ticket first")
	}}
	refused(t, c, "TaskCreate", `{"subject":"A","description":"a"}`, "name a ticket first")
	if _, there := item(t, c, seen.ID); there || seen.Subject != "A" {
		t.Errorf("%s is there: %v", seen.ID, there)
	}
	c.Hooks = hooks{created: func(it todo.Item) error { // somebody else was faster
		_, err := c.Store.Delete(t.Context(), it.ID)
		return errors.Join(errors.New("no"), err)
	}}
	if out := call(t, c, "TaskCreate", `{"subject":"A","description":"a"}`); out.Text != "TaskCreate: no" {
		t.Errorf("text %q", out.Text)
	}
}

// TestCreatedEnds: a turn that ends while a hook runs leaves no to-do behind.
func TestCreatedEnds(t *testing.T) {
	c := config(t)
	why := errors.New("the turn is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	c.Hooks = hooks{created: func(todo.Item) error { cancel(why); return ctx.Err() }}
	_, err := New(c)[0].Call(ctx, agent.Call{Input: json.RawMessage(`{"subject":"A","description":"a"}`)})
	if !errors.Is(err, why) {
		t.Errorf("Call = %v", err)
	}
	if _, there := item(t, c, 1); there {
		t.Error("the to-do is there")
	}
}

func TestCompletedHook(t *testing.T) {
	c := config(t)
	ok(t, c, "TaskCreate", `{"subject":"A","description":"a"}`)
	ok(t, c, "TaskUpdate", `{"taskId":"1","status":"in_progress"}`)
	asked, failing := 0, true
	c.Hooks = hooks{completed: func(it todo.Item) error {
		asked++
		if it.Status != todo.Completed || it.Subject != "AA" {
			t.Errorf("the hook sees %+v", it)
		}
		if failing {
			return errors.New("3 tests fail")
		}
		return nil
	}}
	refused(t, c, "TaskUpdate", `{"taskId":"1","status":"completed","subject":"AA"}`, "3 tests fail")
	if it, _ := item(t, c, 1); it.Status != todo.InProgress || it.Subject != "A" {
		t.Errorf("after the refusal: %+v", it)
	}
	failing = false
	ok(t, c, "TaskUpdate", `{"taskId":"1","status":"completed","subject":"AA"}`)
	ok(t, c, "TaskUpdate", `{"taskId":"1","status":"completed","subject":"AA"}`) // it is: nothing is asked
	ok(t, c, "TaskUpdate", `{"taskId":"1","status":"pending"}`)
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// TestCompletedMeanwhile: what changes while a hook runs is put to it again, and
// not for ever.
func TestCompletedMeanwhile(t *testing.T) {
	c := config(t)
	ok(t, c, "TaskCreate", `{"subject":"A","description":"a"}`)
	asked, restless := 0, 2
	c.Hooks = hooks{completed: func(todo.Item) error {
		if asked++; asked <= restless {
			text := fmt.Sprint(asked)
			_, err := c.Store.Update(t.Context(), 1, todo.Patch{Description: &text})
			return err
		}
		return nil
	}}
	ok(t, c, "TaskUpdate", `{"taskId":"1","status":"completed"}`)
	if it, _ := item(t, c, 1); asked != 3 || it.Status != todo.Completed || it.Description != "2" {
		t.Errorf("asked %d times: %+v", asked, it)
	}
	ok(t, c, "TaskUpdate", `{"taskId":"1","status":"pending"}`)
	asked, restless = 0, 99
	refused(t, c, "TaskUpdate", `{"taskId":"1","status":"completed"}`, "changed meanwhile")
	if it, _ := item(t, c, 1); asked != attempts || it.Status != todo.Pending {
		t.Errorf("asked %d times: %+v", asked, it)
	}
	asked = 0
	c.Hooks = hooks{completed: func(todo.Item) error {
		_, err := c.Store.Delete(t.Context(), 1)
		return err
	}}
	refused(t, c, "TaskUpdate", `{"taskId":"1","status":"completed"}`, "no such to-do")
}

func TestAssign(t *testing.T) {
	c := config(t)
	ok(t, c, "TaskCreate", `{"subject":"A","description":"a"}`)
	var told []string
	var fail error
	c.Assign = func(_ context.Context, owner string, it todo.Item, by string) error {
		told = append(told, fmt.Sprintf("%s %s %s by %s", owner, it.ID, it.Subject, by))
		return fail
	}
	ok(t, c, "TaskUpdate", `{"taskId":"1","owner":"ann"}`)
	ok(t, c, "TaskUpdate", `{"taskId":"1","owner":"ann"}`)                        // no change
	ok(t, c, "TaskUpdate", `{"taskId":"1","owner":""}`)                           // nobody
	ok(t, c, "TaskUpdate", `{"taskId":"1","status":"in_progress"}`)               // the caller itself
	ok(t, c, "TaskUpdate", `{"taskId":"1","owner":"bob","status":"in_progress"}`) // by name, not by the start
	ok(t, c, "TaskUpdate", `{"taskId":"1","subject":"AA"}`)                       // owner unchanged
	if got, want := strings.Join(told, "; "), "ann #1 A by main; bob #1 A by main"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	fail = errors.New("no such agent")
	if text, _ := ok(t, c, "TaskUpdate", `{"taskId":"1","owner":"eve"}`); !strings.Contains(text,
		"eve could not be told: no such agent") {
		t.Errorf("text %q", text)
	}
}

func TestReminder(t *testing.T) {
	c := config(t)
	for range 3 {
		ok(t, c, "TaskCreate", `{"subject":"A","description":"a"}`)
	}
	complete := func(c Config, id string) bool {
		text, _ := ok(t, c, "TaskUpdate", `{"taskId":"`+id+`","status":"completed"}`)
		return strings.Contains(text, "NOTE: all 3 to-dos")
	}
	if complete(c, "1") || complete(c, "2") {
		t.Error("a reminder while one is open")
	}
	if !complete(c, "3") {
		t.Error("no reminder")
	}
	if complete(c, "3") {
		t.Error("a reminder without a completion")
	}
	ok(t, c, "TaskUpdate", `{"taskId":"3","status":"pending"}`)
	sub := c
	sub.Main = false
	if complete(sub, "3") {
		t.Error("a reminder for a subagent")
	}
}

// TestTexts: the model sees what it needs, and nothing that is alive on a screen.
func TestTexts(t *testing.T) {
	c := config(t)
	ok(t, c, "TaskCreate", `{"subject":"A \u202e x","description":"first\nline \u001b[2J"}`)
	ok(t, c, "TaskCreate", `{"subject":"B","description":"b"}`)
	ok(t, c, "TaskUpdate", `{"taskId":"2","addBlockedBy":["1"],"owner":"ann"}`)
	list, _ := ok(t, c, "TaskList", `{}`)
	if !strings.Contains(list, "#1 [pending] A ") || !strings.Contains(list, "#2 [pending] B (ann) [waits for #1]") {
		t.Errorf("list %q", list)
	}
	get, _ := ok(t, c, "TaskGet", `{"taskId":"1"}`)
	if !strings.Contains(get, "Blocks: #2") || !strings.Contains(get, "first\nline") ||
		strings.ContainsAny(get+list, "\x1b\u202e") {
		t.Errorf("get %q", get)
	}
}

func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	c := config(t)
	c.Store = todo.At(dir, false)
	ok(t, c, "TaskCreate", `{"subject":"A","description":"a"}`)
	if err := os.WriteFile(filepath.Join(dir, "2.json"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c2 := range [][2]string{{"TaskList", `{}`}, {"TaskGet", `{"taskId":"2"}`}} {
		if text, _ := ok(t, c, c2[0], c2[1]); !strings.Contains(text, "2.json") {
			t.Errorf("%s: %q", c2[0], text)
		}
	}
	refused(t, c, "TaskUpdate", `{"taskId":"2","status":"completed"}`, "2.json")
}

func TestPage(t *testing.T) {
	items := make([]todo.Item, maxListed+10)
	for i := range items {
		items[i] = todo.Item{ID: todo.ID(i + 1), Status: todo.Pending}
	}
	for _, i := range []int{0, 5, 6} {
		items[i].Status = todo.Completed
	}
	shown, hidden := page(items)
	if len(shown) != maxListed || hidden != 10 || shown[0].ID != 2 || shown[4].ID != 8 ||
		shown[maxListed-1].ID != todo.ID(maxListed+3) {
		t.Errorf("%d shown from %s to %s, %d hidden", len(shown), shown[0].ID, shown[len(shown)-1].ID, hidden)
	}
	if shown, hidden := page(items[:3]); len(shown) != 3 || hidden != 0 {
		t.Errorf("%d shown, %d hidden", len(shown), hidden)
	}
}
