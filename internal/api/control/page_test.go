package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/drover-dev/drover/task"
)

// A page is read as it was written, however the JSON stands and in whatever pieces it
// comes; and half a page is an error.
func TestPage(t *testing.T) {
	for _, n := range []int{0, 1, 3} {
		page := Page{Tasks: []task.Record{}}
		for i := range n {
			page.Tasks = append(page.Tasks, task.Record{ID: task.ID(fmt.Sprintf("b%08d", i)), Prompt: "a\nb <c>" + strings.Repeat("x", i*40<<10)})
		}
		if n > 1 {
			page.Next, page.Problem = 7, `a "full" disk`
		}
		var ours, wide bytes.Buffer
		if err := encodePage(&ours, page, func(r task.Record) task.Record { return r }); err != nil {
			t.Fatal(err)
		}
		if err := json.Indent(&wide, ours.Bytes(), "", " "); err != nil {
			t.Fatal(err)
		}
		var narrow bytes.Buffer
		if err := json.Compact(&narrow, ours.Bytes()); err != nil {
			t.Fatal(err)
		}
		mixed := strings.Replace(ours.String(), "\n,", "\n ,", 1) // the second record is no line of its own kind
		for _, text := range []string{ours.String(), wide.String(), narrow.String(), mixed,
			strings.Replace(ours.String(), `],"next"`, `],"new":{"a":[1]},"next"`, 1)} {
			for name, r := range map[string]func() (Page, error){
				"whole":  func() (Page, error) { return decodePage(strings.NewReader(text)) },
				"pieces": func() (Page, error) { return decodePage(iotest.HalfReader(strings.NewReader(text))) },
			} {
				if got, err := r(); err != nil || !reflect.DeepEqual(got, page) {
					t.Errorf("%d tasks, %s: %.200s is %+.200v, %v", n, name, text, got, err)
				}
			}
		}
		whole := strings.TrimSpace(ours.String())
		for cut := 0; cut < len(whole); cut += 1 + len(whole)/500 {
			if _, err := decodePage(strings.NewReader(whole[:cut])); err == nil {
				t.Errorf("%d tasks: the first %d of %d bytes are taken for a page", n, cut, len(whole))
			}
		}
	}
	for _, text := range []string{"{\"tasks\":[\n,{}\n]}", "{\"tasks\":[\n{}\n{}\n]}", "{\"tasks\":[\n{}\n,\n]}", "{\"tasks\":[\n{}\n,{\"depth\":\"a\"}\n]}"} {
		if _, err := decodePage(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken for a page", text)
		}
	}
	broken := iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("{\"tasks\":[\n{}\n]}\n")))
	if _, err := decodePage(broken); err == nil {
		t.Error("a page that broke off is taken for one")
	}
}
