//go:build linux

package sandbox_test

import (
	"slices"
	"testing"
	"time"
)

// quantiles reports the median and the worst of what do takes.
func quantiles(b *testing.B, do func()) {
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		begun := time.Now()
		do()
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// The first call of a session: directory, supervisor, sandbox, shell, command, receipt.
func BenchmarkColdStart(b *testing.B) {
	dir := b.TempDir()
	local := hostAt(b, dir)
	quantiles(b, func() {
		f := session(b, local, dir)
		f.expect(bash("echo hi"), "hi")
		b.StopTimer()
		if err := local.Destroy(b.Context(), f.spec.Session); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	})
}

// A later call: what is added to a command that does nothing.
func BenchmarkWarmCall(b *testing.B) {
	for name, make := range map[string]func(f *fixture){
		"bash": func(f *fixture) { f.expect(bash("echo hi"), "hi") },
		"read": func(f *fixture) { f.expect(call("read", map[string]any{"file_path": "a"}), "x") },
	} {
		b.Run(name, func(b *testing.B) {
			f := fresh(b)
			f.expect(call("write", map[string]any{"file_path": "a", "content": "x"}), "wrote 1 bytes to a")
			quantiles(b, func() { make(f) })
		})
	}
}
