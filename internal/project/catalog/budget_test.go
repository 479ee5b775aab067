package catalog

import (
	"strings"
	"testing"

	"github.com/drover-dev/drover/task"
)

func TestBudget(t *testing.T) {
	want := task.Budget{USD: 1.5, Tokens: 200_000, WallMS: 30 * 60 * 1000, OutputBytes: 1_000_000}
	e, problems, ok := Parse("a.md", []byte("---\nname: a\ndescription: d\nbudget: {usd: 1.5, tokens: 200000, wall: 30m, output: 1e6}\n---\nWork."), Claude)
	if !ok || len(problems) > 0 || e.Budget != want {
		t.Errorf("from a file: %+v %v", e.Budget, problems)
	}
	entries, problems, err := ParseJSON("given", []byte(`{"a": {"description": "d", "prompt": "p", "budget": {"usd": 1.5, "tokens": 200000, "wall": "30m", "output": 1000000}}}`))
	if err != nil || len(problems) > 0 || entries[0].Budget != want {
		t.Errorf("as JSON: %+v %v %v", entries, problems, err)
	}
	for _, bad := range []string{"5", "[usd, 1]", "{usd: 0}", "{usd: -1}", "{usd: much}", "{usd: .nan}", "{tokens: 1.5}", "{wall: 30}", "{output: 10MB}", "{dollars: 3}"} {
		_, problems, ok := Parse("a.md", []byte("---\nname: a\ndescription: d\nbudget: "+bad+"\n---\nWork."), Claude)
		if ok || len(problems) == 0 || !strings.Contains(problems[len(problems)-1].What, "nobody knows what the agent may spend") {
			t.Errorf("%s was taken: %v", bad, problems)
		}
	}
}
