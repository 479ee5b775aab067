package task_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

const formSchema = `{"message":"Who are you?","schema":{"type":"object","required":["name"],"properties":{
	"name":{"type":"string","minLength":2,"maxLength":4},
	"age":{"type":"integer","minimum":0,"maximum":150},
	"share":{"type":"number"},
	"kind":{"type":"string","enum":["cat","dog"]},
	"size":{"type":"string","oneOf":[{"const":"s","title":"Small"},{"const":"l","title":"Large"}]},
	"tags":{"type":"array","minItems":1,"maxItems":2,"items":{"anyOf":[{"const":"a"},{"const":"b"}]}},
	"sure":{"type":"boolean"},
	"odd":{"type":"nothing that we know"}}}}`

func TestForm(t *testing.T) {
	for name, tt := range map[string]struct {
		values string
		wrong  string // empty: they fit
	}{
		"all":       {`{"name":"Ada","age":36,"share":0.5,"kind":"cat","size":"l","tags":["a","b"],"sure":true,"odd":[1],"more":1}`, ""},
		"runes":     {`{"name":"äöüß"}`, ""},
		"missing":   {`{"age":3}`, `"name" is missing`},
		"no-object": {`["name"]`, "by a JSON object"},
		"null":      {`null`, "by a JSON object"},
		"no-json":   {`Ada`, "by a JSON object"},
		"short":     {`{"name":"A"}`, "at least 2"},
		"long":      {`{"name":"Augusta"}`, "at most 4"},
		"type":      {`{"name":7}`, "must be a text"},
		"half":      {`{"name":"Ada","age":1.5}`, "whole number"},
		"low":       {`{"name":"Ada","age":-1}`, "at least 0"},
		"high":      {`{"name":"Ada","age":151}`, "at most 150"},
		"number":    {`{"name":"Ada","share":"much"}`, "must be a number"},
		"enum":      {`{"name":"Ada","kind":"cow"}`, "one of cat, dog"},
		"one-of":    {`{"name":"Ada","size":"xl"}`, "one of s, l"},
		"boolean":   {`{"name":"Ada","sure":"yes"}`, "true or false"},
		"list":      {`{"name":"Ada","tags":"a"}`, "must be a list"},
		"few":       {`{"name":"Ada","tags":[]}`, "at least 1"},
		"many":      {`{"name":"Ada","tags":["a","b","a"]}`, "at most 2"},
		"item":      {`{"name":"Ada","tags":["c"]}`, "only a, b"},
	} {
		t.Run(name, func(t *testing.T) {
			q := task.Question{Kind: task.Form, Input: json.RawMessage(formSchema)}
			err := q.Check(task.Reply{Allow: true, Input: json.RawMessage(tt.values)})
			if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%s: %v, want %q", tt.values, err, tt.wrong)
			}
		})
	}
	cut := task.Question{Kind: task.Form, Input: json.RawMessage(`"the schema was cut…"`)}
	if err := cut.Check(task.Reply{Allow: true, Input: json.RawMessage(`{"a":1}`)}); err != nil {
		t.Errorf("a schema that nobody has: %v", err)
	}
}

func TestFormReplies(t *testing.T) {
	q := task.Question{Kind: task.Form, Input: json.RawMessage(formSchema)}
	for name, tt := range map[string]struct {
		reply task.Reply
		ok    bool
	}{
		"values":  {task.Reply{Allow: true, Input: json.RawMessage(`{"name":"Ada"}`)}, true},
		"empty":   {task.Reply{Allow: true}, false},
		"text":    {task.Reply{Allow: true, Text: "Ada"}, false},
		"decline": {task.Reply{Reason: "no"}, true},
	} {
		if err := q.Check(tt.reply); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzForm(f *testing.F) {
	f.Add(formSchema, `{"name":"Ada"}`)
	f.Add(`{"schema":{"properties":{"a":{"type":"array","items":7}}}}`, `{"a":[null]}`)
	f.Fuzz(func(t *testing.T, input, values string) {
		q := task.Question{Kind: task.Form, Input: json.RawMessage(input)}
		err := q.Check(task.Reply{Allow: true, Input: json.RawMessage(values)})
		var object map[string]json.RawMessage
		if (json.Unmarshal([]byte(values), &object) != nil || object == nil) && err == nil {
			t.Errorf("%q is taken for an object", values)
		}
	})
}
