package settings

import (
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/internal/options"
)

// What cannot be meant must not remove anything, and the files of a project have
// no say in what becomes of other sessions.
func TestRetention(t *testing.T) {
	own := func(text string) (Settings, []Note) {
		t.Helper()
		set, notes, err := Load(Sources{Flag: text})
		if err != nil {
			t.Fatal(err)
		}
		return set, notes
	}
	for text, want := range map[string]time.Duration{"30d": 720 * time.Hour, "12h": 12 * time.Hour, "1h": time.Hour} {
		if set, notes := own(`{"tasks":{"retention":{"age":"` + text +
			`","bytes":1000000}}}`); set.Tasks.Retention.Age != want || set.Tasks.Retention.Bytes != 1_000_000 ||
			len(notes) > 0 {
			t.Errorf("%s: %+v, %v", text, set.Tasks.Retention, notes)
		}
	}
	for _, text := range []string{"", "30", "0d", "-3d", "59m", "1e9d", "d", "70000d", "soon"} {
		set, notes := own(`{"tasks":{"retention":{"age":"` + text + `","bytes":12}}}`)
		if r := set.Tasks.Retention; r.Age != 0 || r.Bytes != 0 || len(notes) == 0 {
			t.Errorf("%q: %+v, %v", text, r, notes)
		}
	}
	path := write(t, `{"tasks":{"retention":{"age":"1h"},"userQuotaBytes":1,"minFreeBytes":0,"outputLength":500}}`)
	set, notes, err := Load(Sources{Project: path, Trusted: true})
	said := ""
	for _, n := range notes {
		said += n.String() + "\n"
	}
	if err != nil || set.Tasks.Retention != (options.Retention{}) || set.Tasks.UserQuotaBytes != 50_000_000_000 ||
		set.Tasks.MinFreeBytes != 200_000_000 ||
		set.Tasks.OutputLength != 500 || strings.Count(said, "cannot set it") != 3 {
		t.Errorf("of a project: %+v, %v\n%s", set.Tasks, err, said)
	}
}
