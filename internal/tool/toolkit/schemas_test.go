package toolkit_test

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/tool/boardtool"
	"github.com/drover-dev/drover/internal/tool/confine"
	"github.com/drover-dev/drover/internal/tool/files"
	"github.com/drover-dev/drover/internal/tool/findtool"
	"github.com/drover-dev/drover/internal/tool/monitortool"
	"github.com/drover-dev/drover/internal/tool/search"
	"github.com/drover-dev/drover/internal/tool/shelltool"
	"github.com/drover-dev/drover/internal/tool/skilltool"
	"github.com/drover-dev/drover/internal/tool/tasktools"
	"github.com/drover-dev/drover/internal/tool/todotools"
	"github.com/drover-dev/drover/internal/tool/usertools"
	"github.com/drover-dev/drover/internal/tool/webtool"
	"github.com/drover-dev/drover/internal/tool/workflowtool"
)

//rules:constant a flag of the test binary
var update = flag.Bool("update", false, "write testdata/schemas.json anew")

// all is every tool that a model of ours can call, in one form each.
func all() map[string]agent.Tool {
	list := []agent.Tool{
		usertools.NewAsk(nil), boardtool.New(nil, ""), usertools.NewDone(nil), usertools.NewIntent(),
		monitortool.New(monitortool.Config{}), shelltool.New(shelltool.Config{}), skilltool.New(nil, nil),
		tasktools.NewList(nil), tasktools.NewSend(nil), tasktools.NewRead(nil, 0), tasktools.NewSubmitPlan(nil), tasktools.NewExitPlanMode(nil),
		webtool.New(nil), workflowtool.New(nil, "", 0),
	}
	list = append(list, findtool.New(nil, nil)...)
	list = append(list, files.New(confine.Area{})...)
	list = append(list, search.New(confine.Area{})...)
	list = append(list, tasktools.New(tasktools.Config{})...)
	list = append(list, todotools.New(todotools.Config{})...)
	out := make(map[string]agent.Tool, len(list))
	for _, t := range list {
		out[t.Spec().Name] = t
	}
	out["Agent (remote)"] = tasktools.New(tasktools.Config{Remote: true})[0]
	return out
}

// What models are told of input is a promise: it changes with this file and
// not by accident.
func TestSchemas(t *testing.T) {
	const file = "testdata/schemas.json"
	got := map[string]any{}
	for name, tool := range all() {
		var schema any
		if err := json.Unmarshal(tool.Spec().InputSchema, &schema); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got[name] = schema
	}
	if *update {
		data, err := json.MarshalIndent(got, "", "\t")
		if err == nil {
			err = os.WriteFile(file, append(data, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			is, _ := json.Marshal(got[name])
			was, _ := json.Marshal(want[name])
			t.Errorf("%s\nis  %s\nwas %s", name, is, was)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d tools, and %d in %s", len(got), len(want), file)
	}
}
