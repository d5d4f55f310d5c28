// Times and what they come to: percentiles, and ratios of two things measured by turns.
#ifndef BACKENDD_TESTS_BENCH_STATS_H_
#define BACKENDD_TESTS_BENCH_STATS_H_

#include <time.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace backendd::bench {

inline double NowUs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

inline double Percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = percent / 100 * (values.size() - 1);
  return values[static_cast<size_t>(at + 0.5)];
}
inline double Median(std::vector<double> values) { return Percentile(std::move(values), 50); }

// What A cost against B.
struct Ratio {
  double a_us = 0, b_us = 0;            // medians of the blocks' medians
  double ratio = 0, low = 0, high = 0;  // median of the blocks' ratios, its 95 % bootstrap interval
};

// One timed call; answers its microseconds, negative on a failure (which ends the measurement).
using Timed = std::function<double()>;

// A B B A in every block, `calls` each time, so that what drifts hits both alike.
inline bool Abba(int blocks, int calls, const Timed& a, const Timed& b, Ratio* result) {
  std::vector<double> ratios, a_medians, b_medians;
  for (int block = 0; block < blocks; ++block) {
    std::vector<double> times[2];
    for (int which : {0, 1, 1, 0}) {
      for (int i = 0; i < calls; ++i) {
        const double us = which == 0 ? a() : b();
        if (us < 0) return false;
        times[which].push_back(us);
      }
    }
    a_medians.push_back(Median(times[0]));
    b_medians.push_back(Median(times[1]));
    ratios.push_back(a_medians.back() / b_medians.back());
  }
  std::mt19937 random(7);  // the same resamples each run
  std::uniform_int_distribution<size_t> pick(0, ratios.size() - 1);
  std::vector<double> medians;
  for (int i = 0; i < 1000; ++i) {
    std::vector<double> sample;
    for (size_t j = 0; j < ratios.size(); ++j) sample.push_back(ratios[pick(random)]);
    medians.push_back(Median(std::move(sample)));
  }
  *result = {Median(a_medians), Median(b_medians), Median(ratios), Percentile(medians, 2.5),
             Percentile(medians, 97.5)};
  return true;
}

}  // namespace backendd::bench

#endif  // BACKENDD_TESTS_BENCH_STATS_H_
