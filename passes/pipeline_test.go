package passes

import (
	"strings"
	"testing"
)

func TestBrokenOrderIsFound(t *testing.T) {
	a := &Pass{Name: "a", Stage: Import}
	b := &Pass{Name: "b", Stage: Infer, After: []Edge{{"a", "b reads what a makes"}}}
	for name, c := range map[string]struct {
		list []*Pass
		want string
	}{
		"in order":     {[]*Pass{a, b}, ""},
		"reversed":     {[]*Pass{b, a}, "b reads what a makes"},
		"unknown":      {[]*Pass{b}, "not in the pipeline"},
		"twice":        {[]*Pass{a, a}, "twice"},
		"stage":        {[]*Pass{{Name: "c", Stage: Plan}, a}, "stage"},
		"empty reason": {[]*Pass{a, {Name: "d", After: []Edge{{"a", ""}}}}, "no reason"},
	} {
		err := checkPipeline(c.list)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v does not say %q", name, err, c.want)
		}
	}
}

func TestDebugFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"fold/limit=3":      "",
		"all/time":          "",
		"fold/dump,debug=2": "",
		"flod/time":         `did you mean "fold"?`,
		"fold/tme":          `did you mean "time"?`,
		"infer/off":         "required",
		"fold":              "<pass>/<option>",
		"fold/limit=x":      "no option",
	} {
		err := Debug{}.Set(flag)
		switch {
		case want == "" && err != nil:
			t.Errorf("-d=%s: %v", flag, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("-d=%s: error %v does not say %q", flag, err, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for s, want := range map[string]int64{"80GB": 80e9, "80GiB": 80 << 30, "1.5 MiB": 3 << 19, "123": 123, "2tb": 2e12, "7B": 7} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "GB", "-3GB", "80GX", "1e30GB", "NaN"} {
		if n, err := ParseSize(s); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", s, n)
		}
	}
	if b, err := ParseBudget("60%"); err != nil || b.Limit(100, 200) != 160 {
		t.Errorf("60%% of 100 above 100 is %d, %v, want 160", b.Limit(100, 200), err)
	}
	for _, s := range []string{"0%", "-5%", "x%", "0"} {
		if _, err := ParseBudget(s); err == nil {
			t.Errorf("ParseBudget(%q): no error", s)
		}
	}
}
