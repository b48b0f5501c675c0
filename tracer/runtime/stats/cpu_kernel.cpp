// Statistics of strided tensors in one pass over memory. Compiled by tracer/inductor/stats_toolchain.py.
//
// A tensor is read in blocks that stay in the cache. The fast look at a block computes only what vector instructions
// can compute at memory speed: minimum, maximum, sums around a pivot, and the number of zero or subnormal elements. A
// block with elements that are not finite gets the same look with a mask; a block whose squares overflow, or whose
// variance is lost beside its mean, gets an exact look. Moments are merged as in Chan, Golub, LeVeque 1983.
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#define COLD __attribute__((noinline))  // for functions with many instances that rarely run: keeps compilation short

namespace {

constexpr int64_t BLOCK = 4096;
constexpr int64_t FLUSH = 2048;  // elements of a float block after which lanes are added to doubles
constexpr int MOST_THREADS = 64, MOST_DIMS = 64;
constexpr double INF = std::numeric_limits<double>::infinity(), NONE = std::numeric_limits<double>::quiet_NaN();

struct Row {
  int64_t nan, positive_infinity, negative_infinity, zero, near_overflow, subnormal, first_bad;
  double min, max, mean, std;
  int64_t exact_min, exact_max;
  uint64_t digest;
};

struct Table {  // the meaning of each of 256 bit patterns
  double value[256];
  uint8_t flags[256];  // 1: subnormal, 2: near overflow
};

// The fields of a descriptor; `dims` pairs (size, stride) in memory order and `logical` ones in row-major order follow.
enum Field { KIND, COUNT, STEP, WEIGHT, ORDERED, DIMS, LOGICAL, TABLE, ORDER, FIELDS };
enum Kind { F32, F64, BF16, F16, I8, I16, I32, I64, U8, U16, U32, U64, BOOL, BYTES, NIBBLES };

struct Moments {
  double n = 0;
  long double mean = 0, m2 = 0;  // long double, since squares of float64 overflow a double

  COLD void merge(double n2, long double mean2, long double m2_2) {
    if (n2 == 0) return;
    const long double total = n + n2, delta = mean2 - mean;
    mean = n == 0 ? mean2 : mean + delta * (n2 / total);
    m2 = n == 0 ? m2_2 : m2 + m2_2 + delta * delta * (n / total) * n2;
    n = total;
  }
};

struct Partial {
  int64_t nan = 0, positive = 0, negative = 0, zero = 0, near = 0, subnormal = 0, first_bad = -1;
  double min = INF, max = -INF;
  int64_t exact_min = 0, exact_max = 0;
  bool any = false;
  uint64_t digest = 0;
  Moments moments;

  template <class T>
  void integers(T low, T high) {
    exact_min = !any || low < (T)exact_min ? (int64_t)low : exact_min;
    exact_max = !any || high > (T)exact_max ? (int64_t)high : exact_max;
    any = true;
    range((double)low, (double)high);
  }

  void range(double low, double high) {
    min = low < min ? low : min;
    max = high > max ? high : max;
  }

  COLD void join(const Partial& other) {
    nan += other.nan, positive += other.positive, negative += other.negative;
    zero += other.zero, near += other.near, subnormal += other.subnormal, digest += other.digest;
    if (first_bad < 0 || (other.first_bad >= 0 && other.first_bad < first_bad)) first_bad = other.first_bad;
    range(other.min, other.max);
    moments.merge(other.moments.n, other.moments.mean, other.moments.m2);
  }
};

template <class T, int N>
using Vec __attribute__((vector_size(sizeof(T) * N))) = T;

template <class V>
inline V load(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof(V));
  return v;
}

template <class To, class From>
inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

// ---- kinds of floating-point numbers: T is the type in memory, ABS..NEAR are bit patterns, A is the type of sums ---

template <class Bits, class Lane, Bits abs, Bits inf, Bits tiny, Bits near>
struct FloatKind {
  using T = Bits;
  using A = Lane;
  static constexpr int LANES = 64 / sizeof(A);
  static constexpr Bits ABS = abs, INFINITE = inf, NORMAL = tiny, NEAR = near;
};

struct Float32 : FloatKind<uint32_t, float, 0x7fffffffu, 0x7f800000u, 0x00800000u, 0> {
  static double value(T u) { return bits_as<float>(u); }
  static void lanes(const T* p, Vec<A, 16>& a, Vec<A, 16>& b, Vec<T, 16>& count) {
    a = load<Vec<A, 16>>(p), b = load<Vec<A, 16>>(p + 16);
    count -= (Vec<T, 16>)((bits_as<Vec<T, 16>>(a) & ABS) < NORMAL) + (Vec<T, 16>)((bits_as<Vec<T, 16>>(b) & ABS) < NORMAL);
  }
};

struct Float64
    : FloatKind<uint64_t, double, 0x7fffffffffffffffull, 0x7ff0000000000000ull, 0x0010000000000000ull, 0> {
  static double value(T u) { return bits_as<double>(u); }
  static void lanes(const T* p, Vec<A, 8>& a, Vec<A, 8>& b, Vec<T, 8>& count) {
    a = load<Vec<A, 8>>(p), b = load<Vec<A, 8>>(p + 8);
    count -= (Vec<T, 8>)((bits_as<Vec<T, 8>>(a) & ABS) < NORMAL) + (Vec<T, 8>)((bits_as<Vec<T, 8>>(b) & ABS) < NORMAL);
  }
};

struct BFloat16 : FloatKind<uint16_t, float, 0x7fff, 0x7f80, 0x0080, 253 << 7> {
  static double value(T u) { return bits_as<float>((uint32_t)u << 16); }
  static void lanes(const T* p, Vec<A, 16>& a, Vec<A, 16>& b, Vec<T, 32>& count) {
    const auto raw = load<Vec<T, 32>>(p);
    const auto pairs = bits_as<Vec<uint32_t, 16>>(raw);
    a = bits_as<Vec<A, 16>>(pairs << 16), b = bits_as<Vec<A, 16>>(pairs & 0xffff0000u);
    count -= (Vec<T, 32>)((raw & ABS) < NORMAL);
  }
};

struct Float16 : FloatKind<uint16_t, float, 0x7fff, 0x7c00, 0x0400, 29 << 10> {
  static double value(T u) {
    const uint64_t normal = (uint64_t)((u & ABS) + ((1023 - 15) << 10)) << 42;
    const double size = (u & ABS) < NORMAL ? (u & ABS) * 0x1p-24 : bits_as<double>(normal);
    return u & 0x8000 ? -size : size;
  }
  static void lanes(const T* p, Vec<A, 16>& a, Vec<A, 16>& b, Vec<T, 32>& count) {
    const auto raw = load<Vec<T, 32>>(p);
#if defined(__AVX512F__)
    const Vec<short, 16> half[2] = {load<Vec<short, 16>>(p), load<Vec<short, 16>>(p + 16)};
    a = __builtin_ia32_vcvtph2ps512_mask(half[0], Vec<A, 16>{}, (unsigned short)-1, 4);
    b = __builtin_ia32_vcvtph2ps512_mask(half[1], Vec<A, 16>{}, (unsigned short)-1, 4);
#elif defined(__F16C__)
    Vec<A, 8> part[4];
    for (int i = 0; i < 4; i++) part[i] = __builtin_ia32_vcvtph2ps256(load<Vec<short, 8>>(p + 8 * i));
    std::memcpy(&a, part, 64), std::memcpy(&b, part + 2, 64);
#else
    // The exponent is shifted to its place in a float32, and a multiplication by 2 ** (127 - 15) corrects the bias.
    // Infinity and NaN become at least 65536 in magnitude; a final addition makes both infinite, and so not finite.
    const auto pairs = bits_as<Vec<int32_t, 16>>(raw);
    const auto widen = [](Vec<int32_t, 16> high) {
      const auto v = bits_as<Vec<A, 16>>((high >> 3) & (int32_t)0x8fffe000) * 0x1p112f;
      const auto infinite = (v >= 65536.0f) | (v <= -65536.0f);
      return v + bits_as<Vec<A, 16>>(infinite & 0x7f800000);
    };
    a = widen(pairs << 16), b = widen(pairs);
#endif
    count -= (Vec<T, 32>)((raw & ABS) < NORMAL);
  }
};

// ---- the fast look ---------------------------------------------------------------------------------------------

struct Fast {
  double sum = 0, squares = 0, min, max;
  int64_t tiny = 0;
};

template <class V>
inline double total(const V& v) {
  double sum = 0;
  for (size_t i = 0; i < sizeof(V) / sizeof(v[0]); i++) sum += v[i];
  return sum;
}

// Computes the fast look at `n` elements; `n` is a multiple of two vectors and at most BLOCK.
template <class K>
Fast fast_look(const typename K::T* p, int64_t n, typename K::A pivot) {
  using A = typename K::A;
  using V = Vec<A, K::LANES>;
  Fast out;
  V low, high, low2, high2;
  Vec<typename K::T, 64 / sizeof(typename K::T)> count{}, unused{};
  K::lanes(p, low, low2, unused);
  high = low, high2 = low2;
  for (int64_t start = 0; start < n; start += FLUSH) {
    const int64_t end = start + FLUSH < n ? start + FLUSH : n;
    V sum{}, sum2{}, squares{}, squares2{};
    for (int64_t i = start; i < end; i += 2 * K::LANES) {
      V a, b;
      K::lanes(p + i, a, b, count);
      low = a < low ? a : low, low2 = b < low2 ? b : low2;
      high = a > high ? a : high, high2 = b > high2 ? b : high2;
      a -= pivot, b -= pivot;
      sum += a, sum2 += b;
      squares += a * a, squares2 += b * b;
    }
    out.sum += total(sum + sum2), out.squares += total(squares + squares2);
  }
  low = low2 < low ? low2 : low, high = high2 > high ? high2 : high;
  A least = low[0], most = high[0];
  for (int i = 1; i < K::LANES; i++) least = low[i] < least ? low[i] : least, most = high[i] > most ? high[i] : most;
  out.min = least, out.max = most;
  for (size_t i = 0; i < 64 / sizeof(typename K::T); i++) out.tiny += count[i];
  return out;
}

// The fast look at the finite elements, and the numbers of the other ones.
struct Masked : Fast {
  int64_t bad = 0, nan = 0, positive = 0;
};

template <class K>
COLD Masked masked_look(const typename K::T* p, int64_t n, typename K::A pivot) {
  using T = typename K::T;
  using A = typename K::A;
  using V = Vec<A, K::LANES>;
  using Bits = std::conditional_t<sizeof(A) == 4, uint32_t, uint64_t>;
  using B = Vec<Bits, K::LANES>;
  constexpr int WORDS = 64 / sizeof(T);
  constexpr Bits ABS = ~(Bits)0 >> 1, INFINITE = sizeof(A) == 4 ? (Bits)0x7f800000u : (Bits)0x7ff0000000000000ull;
  const V none{}, most = none + (A)INF;
  Masked out;
  V low = most, high = -most;
  Vec<T, WORDS> tiny{}, bad{}, nan{}, positive{};
  for (int64_t start = 0; start < n; start += FLUSH) {
    const int64_t end = start + FLUSH < n ? start + FLUSH : n;
    V sum{}, squares{};
    for (int64_t i = start; i < end; i += 2 * K::LANES) {
      V pair[2];
      K::lanes(p + i, pair[0], pair[1], tiny);
      for (int64_t j = 0; j < 2 * K::LANES; j += WORDS) {
        const auto raw = load<Vec<T, WORDS>>(p + i + j), size = raw & K::ABS;
        bad -= (Vec<T, WORDS>)(size >= K::INFINITE), nan -= (Vec<T, WORDS>)(size > K::INFINITE);
        positive -= (Vec<T, WORDS>)(raw == K::INFINITE);
      }
      for (const V& x : pair) {
        const auto finite = (bits_as<B>(x) & ABS) < INFINITE;
        const V least = finite ? x : most, largest = finite ? x : -most, rest = finite ? x - pivot : none;
        low = least < low ? least : low, high = largest > high ? largest : high;
        sum += rest, squares += rest * rest;
      }
    }
    out.sum += total(sum), out.squares += total(squares);
  }
  out.min = low[0], out.max = high[0];
  for (int i = 1; i < K::LANES; i++) out.min = std::fmin(out.min, low[i]), out.max = std::fmax(out.max, high[i]);
  for (int i = 0; i < WORDS; i++)
    out.tiny += tiny[i], out.bad += bad[i], out.nan += nan[i], out.positive += positive[i];
  return out;
}

// ---- the exact look -------------------------------------------------------------------------------------------

// Computes moments of `n` > 0 finite numbers in two passes, scaled by a power of two if squares would overflow or
// underflow. `x` has room for a vector after its end.
COLD void exact_moments(double* x, int64_t n, Partial& part) {
  using V = Vec<double, 8>;
  const int64_t padded = (n + 7) & ~(int64_t)7;
  for (int64_t i = n; i < padded; i++) x[i] = x[0];
  V low = load<V>(x), high = low;
  for (int64_t i = 0; i < padded; i += 8) {
    const V v = load<V>(x + i);
    low = v < low ? v : low, high = v > high ? v : high;
  }
  for (int i = 0; i < 8; i++) part.range(low[i], high[i]), low[0] = std::fmin(low[0], low[i]), high[0] = std::fmax(high[0], high[i]);
  const double largest = std::fmax(-low[0], high[0]);
  const int power = largest > 1e140 || (largest > 0 && largest < 1e-140) ? std::ilogb(largest) : 0;
  // Two factors are needed, since 2 ** 1074 is not a double.
  const double factor = std::ldexp(1.0, -power / 2), factor2 = std::ldexp(1.0, -power - (-power / 2));
  // The padding is equal to the pivot and adds nothing.
  V sums{}, rests{}, squares{};
  const double pivot = x[0] * factor * factor2;
  for (int64_t i = 0; i < padded; i += 8) sums += load<V>(x + i) * factor * factor2 - pivot;
  const double mean = pivot + total(sums) / n;
  const double filler = mean / factor2 / factor;
  for (int64_t i = n; i < padded; i++) x[i] = filler;
  for (int64_t i = 0; i < padded; i += 8) {
    const V rest = load<V>(x + i) * factor * factor2 - mean;
    rests += rest, squares += rest * rest;
  }
  const double rest = total(rests);
  part.moments.merge(n, ldexpl(mean + rest / n, power), ldexpl(std::fmax(0, total(squares) - rest * rest / n), 2 * power));
}

// Returns the index of the first NaN or infinity; there must be one.
template <class K>
int64_t first_bad(const typename K::T* p) {
  int64_t i = 0;
  while ((typename K::T)(p[i] & K::ABS) < K::INFINITE) i++;
  return i;
}

template <class K>
COLD void exact_look(const typename K::T* p, int64_t n, int64_t start, Partial& part) {
  double finite[BLOCK + 8];
  int64_t m = 0;
  uint32_t zero = 0, subnormal = 0, near = 0, nan = 0, positive = 0;
  for (int64_t i = 0; i < n; i++) {
    const typename K::T size = p[i] & K::ABS;
    zero += size == 0;
    subnormal += size < K::NORMAL;
    near += K::NEAR && size >= K::NEAR;
    nan += size > K::INFINITE;
    positive += p[i] == K::INFINITE;
  }
  for (int64_t i = 0; i < n; i++) {  // without a branch, since other elements may occur at random
    finite[m] = K::value(p[i]);
    m += (typename K::T)(p[i] & K::ABS) < K::INFINITE;
  }
  const int64_t bad = n - m;
  part.zero += zero, part.subnormal += subnormal - zero, part.near += K::NEAR ? near - bad : 0;
  part.nan += nan, part.positive += positive, part.negative += bad - nan - positive;
  if (bad && part.first_bad < 0) part.first_bad = start + first_bad<K>(p);
  if (m) exact_moments(finite, m, part);
}

// ---- the digest, which digest.py defines ----------------------------------------------------------------------

constexpr int64_t UNIT = 8192;
constexpr uint64_t LOW = 0xffffffffu;

constexpr uint32_t mixed(uint32_t number, uint32_t factor, int shift, uint32_t factor2, int shift2) {
  uint32_t x = (number + 1) * factor;
  x ^= x >> shift, x *= factor2;
  return (x ^ x >> shift2) | 1;
}

struct PlaceKeys {
  alignas(64) uint32_t of[UNIT / 4] = {};
  PlaceKeys() {
    for (uint32_t i = 0; i < UNIT / 4; i++) of[i] = mixed(i, 0x9E3779B1u, 15, 0x85EBCA77u, 13);
  }
};
const PlaceKeys place_keys;

#if defined(__AVX512F__) && !defined(__clang__)
using Words = Vec<uint64_t, 8>;
inline Words product(Words a, Words b) {  // of the lower halves
  return (Words)__builtin_ia32_pmuludq512_mask((Vec<int, 16>)a, (Vec<int, 16>)b, (Vec<long long, 8>)Words{}, 255);
}
#elif defined(__AVX2__) && !defined(__clang__)
using Words = Vec<uint64_t, 4>;
inline Words product(Words a, Words b) { return (Words)__builtin_ia32_pmuludq256((Vec<int, 8>)a, (Vec<int, 8>)b); }
#else
using Words = Vec<uint64_t, 4>;
inline Words product(Words a, Words b) { return (a & LOW) * (b & LOW); }
#endif

// Sums the words of a part of a unit, each times its key.
inline uint64_t unit_sum(const char* p, int64_t n, const uint32_t* keys) {
  constexpr int64_t SIZE = sizeof(Words);
  const char* k = (const char*)keys;
  Words sums[4] = {};
  int64_t i = 0;
  for (; i + 2 * SIZE <= n; i += 2 * SIZE)
    for (int j = 0; j < 2; j++) {
      const Words w = load<Words>(p + i + j * SIZE), key = load<Words>(k + i + j * SIZE);
      sums[2 * j] += product(w, key), sums[2 * j + 1] += product(w >> 32, key >> 32);
    }
  const Words all = sums[0] + sums[1] + sums[2] + sums[3];
  uint64_t sum = 0;
  for (size_t j = 0; j < SIZE / 8; j++) sum += all[j];
  for (; i < n; i += 4) {
    uint32_t word = 0;
    std::memcpy(&word, p + i, n - i < 4 ? n - i : 4);
    sum += (uint64_t)word * keys[i / 4];
  }
  return sum;
}

// Returns the part of the sum of `n` bytes that begin at byte `at`, a multiple of 4, of the tensor.
inline uint64_t digest_sum(const void* data, int64_t n, int64_t at) {
  uint64_t sum = 0;
  for (const char* p = (const char*)data; n > 0;) {
    const int64_t within = at % UNIT, size = n < UNIT - within ? n : UNIT - within;
    sum += unit_sum(p, size, place_keys.of + within / 4) * mixed(at / UNIT, 0xC2B2AE3Du, 16, 0x27D4EB2Fu, 15);
    p += size, at += size, n -= size;
  }
  return sum;
}

uint64_t finished(uint64_t sum, int64_t bytes, int64_t order) {
  sum += (uint64_t)(bytes + 1) * 0x9E3779B97F4A7C15ull + (uint64_t)order;
  return sum ? sum : 1;
}

// ---- blocks ----------------------------------------------------------------------------------------------------

template <class K>
struct FloatBlocks {
  using T = typename K::T;
  using A = typename K::A;
  static constexpr bool MAY_BE_BAD = true, SINGLE = sizeof(A) == 4;
  A pivot = 0;
  bool was_bad = false;  // the block after one that is not finite is often not finite either

  bool trusted(const Fast& f, double n) const {
    if (!(f.squares < INF) || !std::isfinite(f.sum)) return false;
    if (f.squares == 0) return f.min == pivot && f.max == pivot;
    const double m2 = f.squares - f.sum * f.sum / n;
    return f.squares > n * (SINGLE ? 1e-30 : 1e-280) && m2 > f.squares * (SINGLE ? 1e-2 : 1e-6);
  }

  // Adds the moments of `finite` elements, and the counts of all `n`.
  void take(const T* p, int64_t n, double finite, const Fast& f, Partial& part) const {
    part.range(f.min, f.max);
    part.moments.merge(finite, (long double)pivot + f.sum / finite, f.squares - f.sum * f.sum / finite);
    counts(p, n, f, part);
  }

  void counts(const T* p, int64_t n, const Fast& f, Partial& part) const {
    if (f.tiny) {
      T zero[32] = {};
      for (int64_t i = 0; i < n; i += 32)
        for (int j = 0; j < 32; j++) zero[j] += (p[i + j] & K::ABS) == 0;
      int64_t zeros = 0;
      for (T z : zero) zeros += z;
      part.zero += zeros, part.subnormal += f.tiny - zeros;
    }
    if (K::NEAR && std::fmax(-f.min, f.max) >= K::value(K::NEAR)) {
      uint32_t near = 0;
      for (int64_t i = 0; i < n; i++) near += (T)((p[i] & K::ABS) - K::NEAR) < (T)(K::INFINITE - K::NEAR);
      part.near += near;
    }
  }

  COLD bool masked(const T* p, int64_t n, int64_t start, Partial& part) {
    const Masked f = masked_look<K>(p, n, pivot);
    was_bad = f.bad != 0;
    if (f.bad < n) {
      if (!trusted(f, n - f.bad)) return false;
      take(p, n, n - f.bad, f, part);
    }
    part.nan += f.nan, part.positive += f.positive, part.negative += f.bad - f.nan - f.positive;
    if (f.bad && part.first_bad < 0) part.first_bad = start + first_bad<K>(p);
    return true;
  }

  // The looks return whether their result is exact enough.
  bool fast(const T* p, int64_t n, int64_t start, Partial& part) {
    const Fast f = fast_look<K>(p, n, pivot);
    if (!(f.squares < INF)) return masked(p, n, start, part);
    if (!trusted(f, n)) return false;
    take(p, n, n, f, part);
    return true;
  }

  void operator()(const T* p, int64_t n, int64_t start, Partial& part) {
    const int64_t whole = n & ~(int64_t)31;
    if (whole && !(was_bad ? masked(p, whole, start, part) : fast(p, whole, start, part))) {
      Partial exact;
      exact_look<K>(p, whole, start, exact);
      if (exact.moments.n) pivot = (A)exact.moments.mean;
      if (!std::isfinite(pivot)) pivot = 0;
      part.join(exact);
    }
    if (n > whole) exact_look<K>(p + whole, n - whole, start + whole, part);
  }

  void finish(Partial&) {}
};

template <class Number, bool IS_BOOL = false>
struct IntegerBlocks {
  using T = Number;
  static constexpr bool MAY_BE_BAD = false;
  using U = std::make_unsigned_t<T>;

  void operator()(const T* p, int64_t n, int64_t, Partial& part) {
    T low = IS_BOOL ? p[0] != 0 : p[0], high = low;
    uint32_t zero = 0;
    for (int64_t i = 0; i < n; i++) {
      const T x = IS_BOOL ? p[i] != 0 : p[i];
      low = x < low ? x : low, high = x > high ? x : high;
      zero += x == 0;
    }
    part.zero += zero;
    part.integers(low, high);
    double sum = 0, squares = 0;
    if (IS_BOOL) sum = squares = n - (low ? n : zero);
    else if (low != high) sums(p, n, low, high, sum, squares);
    const double m2 = squares - sum * sum / n;
    part.moments.merge(n, (IS_BOOL ? 0 : (long double)low) + sum / n, m2 > 0 ? m2 : 0);
  }

  // Sums the differences from the minimum, which fit the unsigned type and are exact enough for the variance.
  static void sums(const T* p, int64_t n, T low, T high, double& sum, double& squares) {
    if (sizeof(T) == 1 || (U)((U)high - (U)low) < 1024) {
      uint32_t s = 0, q = 0;
      for (int64_t i = 0; i < n; i++) {
        const uint32_t d = (uint32_t)(U)((U)p[i] - (U)low);
        s += d, q += d * d;
      }
      sum = s, squares = q;
      return;
    }
    using Wide = std::conditional_t<sizeof(T) == 8, U, uint32_t>;
    Vec<double, 8> s{}, q{};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
      const auto wide = __builtin_convertvector(load<Vec<U, 8>>(p + i) - (U)low, Vec<Wide, 8>);
      const auto d = __builtin_convertvector(wide, Vec<double, 8>);
      s += d, q += d * d;
    }
    sum = total(s), squares = total(q);
    for (; i < n; i++) {
      const double d = (double)(U)((U)p[i] - (U)low);
      sum += d, squares += d * d;
    }
  }

  void finish(Partial&) {}
};

// Counts types of at most 8 bits by bit pattern; all statistics follow from 256 counts.
template <bool IS_NIBBLES>
struct PatternBlocks {
  using T = uint8_t;
  static constexpr bool MAY_BE_BAD = !IS_NIBBLES;
  const Table& table;
  int64_t seen[256] = {};
  bool bad[256];

  explicit PatternBlocks(const Table& t) : table(t) {
    for (int i = 0; i < 256; i++) bad[i] = !std::isfinite(t.value[i]);
  }

  void operator()(const T* p, int64_t n, int64_t start, Partial& part) {
    uint32_t count[4][256] = {};  // four, since neighbours are often equal and an increment waits for the previous one
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
      for (int j = 0; j < 4; j++) count[j][p[i + j]]++;
    for (; i < n; i++) count[0][p[i]]++;
    bool any_bad = false;
    for (int v = 0; v < 256; v++) {
      const uint32_t sum = count[0][v] + count[1][v] + count[2][v] + count[3][v];
      seen[v] += sum;
      any_bad |= bad[v] && sum;
    }
    if (any_bad && !IS_NIBBLES && part.first_bad < 0)
      for (i = 0; part.first_bad < 0; i++)
        if (bad[p[i]]) part.first_bad = start + i;
  }

  void finish(Partial& part) {
    int64_t nibbles[16] = {};
    if (IS_NIBBLES)
      for (int v = 0; v < 256; v++) nibbles[v & 15] += seen[v], nibbles[v >> 4] += seen[v];
    for (int v = 0; v < (IS_NIBBLES ? 16 : 256); v++) {
      const int64_t n = IS_NIBBLES ? nibbles[v] : seen[v];
      const double x = table.value[v];
      if (!n) continue;
      if (!std::isfinite(x)) {
        (x != x ? part.nan : x > 0 ? part.positive : part.negative) += n;
        continue;
      }
      part.range(x, x);
      part.zero += x == 0 ? n : 0;
      part.subnormal += table.flags[v] & 1 ? n : 0;
      part.near += table.flags[v] & 2 ? n : 0;
      part.moments.merge(n, x, 0);
    }
  }
};

// Switches off the flushing of subnormals, which a thread may have set (torch.set_flush_denormal).
struct Environment {
  std::fenv_t before;
  Environment() { std::fegetenv(&before), std::fesetenv(FE_DFL_ENV); }
  ~Environment() { std::fesetenv(&before); }
};

// ---- walking a tensor ------------------------------------------------------------------------------------------

struct Walk {
  int64_t dims;
  const int64_t* pairs;  // (size, stride) each

  int64_t size(int64_t d) const { return pairs[2 * d]; }
  int64_t stride(int64_t d) const { return pairs[2 * d + 1]; }
  bool dense() const { return dims == 0 || (dims == 1 && stride(0) == 1); }

  int64_t offset(int64_t index) const {
    int64_t at = 0;
    for (int64_t d = dims - 1; d >= 0; d--) at += index % size(d) * stride(d), index /= size(d);
    return at;
  }
};

// Copies the elements start, start + step, ... of the walk to `out`.
template <class T>
COLD void gather(const T* base, const Walk& walk, int64_t start, int64_t n, int64_t step, T* out) {
  if (walk.dims <= 1 || step > 1) {
    const int64_t stride = walk.dims ? walk.stride(0) : 1;
    if (walk.dims <= 1)
      for (int64_t i = 0; i < n; i++) out[i] = base[(start + i * step) * stride];
    else
      for (int64_t i = 0; i < n; i++) out[i] = base[walk.offset(start + i * step)];
    return;
  }
  const int64_t last = walk.dims - 1, stride = walk.stride(last);
  int64_t at[MOST_DIMS], index = start;
  for (int64_t d = last; d >= 0; d--) at[d] = index % walk.size(d), index /= walk.size(d);
  const T* p = base + walk.offset(start);
  for (int64_t done = 0; done < n;) {
    int64_t run = walk.size(last) - at[last];
    run = run < n - done ? run : n - done;
    if (stride == 1) std::memcpy(out + done, p, run * sizeof(T));
    else
      for (int64_t i = 0; i < run; i++) out[done + i] = p[i * stride];
    done += run, at[last] += run, p += run * stride;
    for (int64_t d = last; d > 0 && at[d] == walk.size(d); d--)
      at[d] = 0, p += walk.stride(d - 1) - walk.size(d) * walk.stride(d), at[d - 1]++;
  }
}

// Casts to unsigned, so that signed and unsigned integers are copied by the same code.
template <class T>
auto words(T* p) {
  using Word = std::make_unsigned_t<std::remove_const_t<T>>;
  return reinterpret_cast<std::conditional_t<std::is_const_v<T>, const Word, Word>*>(p);
}

template <class Blocks>
void read_range(const typename Blocks::T* base, const Walk& walk, const int64_t* desc, int64_t start, int64_t end,
                Blocks blocks, Partial& part) {
  const int64_t step = desc[STEP];
  const bool in_place = step == 1 && walk.dense();
  alignas(64) typename Blocks::T copy[BLOCK];
  for (int64_t i = start; i < end; i += BLOCK) {
    const int64_t n = end - i < BLOCK ? end - i : BLOCK;
    if (!in_place) gather(words(base), walk, i * step, n, step, words(copy));
    const typename Blocks::T* block = in_place ? base + i : copy;
    blocks(block, n, i, part);
    part.digest += digest_sum(block, n * sizeof(*block), i * sizeof(*block));
  }
  blocks.finish(part);
}

// Finds the first NaN or infinity in row-major order if the order in memory is another one.
template <class Blocks>
COLD int64_t first_in_rows(const typename Blocks::T* base, const int64_t* desc, Blocks blocks, int64_t count) {
  const Walk walk{desc[LOGICAL], desc + FIELDS + 2 * desc[DIMS]};
  typename Blocks::T copy[BLOCK];
  for (int64_t i = 0; i < count; i += BLOCK) {
    const int64_t n = count - i < BLOCK ? count - i : BLOCK;
    Partial part;
    gather(words(base), walk, i, n, 1, words(copy));
    blocks(copy, n, i, part);
    if (part.first_bad >= 0) return part.first_bad;
  }
  return -1;
}

COLD void write_row(const Partial& part, int64_t weight, int64_t step, uint64_t digest, Row& row) {
  const Moments& m = part.moments;
  const double n = m.n * weight;
  const double mean = (double)m.mean;
  row = {part.nan * weight, part.positive * weight, part.negative * weight, part.zero * weight, part.near * weight,
         part.subnormal * weight, part.first_bad < 0 ? -1 : part.first_bad * step, m.n ? part.min : NONE,
         m.n ? part.max : NONE, !m.n ? NONE : std::fmin(std::fmax(mean, part.min), part.max),
         n < 2 ? NONE : (double)sqrtl(m.m2 * weight / (n - 1)), part.exact_min, part.exact_max, digest};
}

template <class Blocks>
COLD Partial read_in_threads(const typename Blocks::T* base, const Walk& walk, const int64_t* desc, Blocks blocks,
                             int threads) {
  Partial parts[MOST_THREADS];
  const int64_t count = desc[COUNT], share = (count / BLOCK / threads + 1) * BLOCK;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; t++) {
    const Environment environment;
    const int64_t start = t * share, end = start + share < count ? start + share : count;
    if (start < end) read_range(base, walk, desc, start, end, blocks, parts[t]);
  }
  for (int t = 1; t < threads; t++) {
    parts[0].join(parts[t]);
    if (!parts[t].any) continue;
    if constexpr (std::is_same_v<typename Blocks::T, uint64_t>)
      parts[0].integers((uint64_t)parts[t].exact_min, (uint64_t)parts[t].exact_max);
    else parts[0].integers(parts[t].exact_min, parts[t].exact_max);
  }
  return parts[0];
}

template <class Blocks>
void read_tensor(const void* data, const int64_t* desc, Blocks blocks, int threads, Row& row) {
  using T = typename Blocks::T;
  const T* base = static_cast<const T*>(data);
  const Walk walk{desc[DIMS], desc + FIELDS};
  Partial all;
  if (base && threads > 1) all = read_in_threads(base, walk, desc, blocks, threads < MOST_THREADS ? threads : MOST_THREADS);
  else if (base) read_range(base, walk, desc, 0, desc[COUNT], blocks, all);
  if constexpr (Blocks::MAY_BE_BAD)
    if (all.first_bad >= 0 && !desc[ORDERED])
      all.first_bad = first_in_rows(base, desc, blocks, desc[COUNT] * desc[WEIGHT]);
  const bool is_digested = (base || !desc[COUNT]) && desc[WEIGHT] == 1;
  const uint64_t digest = is_digested ? finished(all.digest, desc[COUNT] * sizeof(T), desc[ORDER]) : 0;
  write_row(all, desc[WEIGHT], desc[STEP], digest, row);
}

void dispatch(const int64_t* desc, const void* data, const Table* tables, int threads, Row& row) {
  const Table& table = tables[desc[TABLE]];
  switch (desc[KIND]) {
    case F32: return read_tensor(data, desc, FloatBlocks<Float32>(), threads, row);
    case F64: return read_tensor(data, desc, FloatBlocks<Float64>(), threads, row);
    case BF16: return read_tensor(data, desc, FloatBlocks<BFloat16>(), threads, row);
    case F16: return read_tensor(data, desc, FloatBlocks<Float16>(), threads, row);
    case I8: return read_tensor(data, desc, IntegerBlocks<int8_t>(), threads, row);
    case I16: return read_tensor(data, desc, IntegerBlocks<int16_t>(), threads, row);
    case I32: return read_tensor(data, desc, IntegerBlocks<int32_t>(), threads, row);
    case I64: return read_tensor(data, desc, IntegerBlocks<int64_t>(), threads, row);
    case U8: return read_tensor(data, desc, IntegerBlocks<uint8_t>(), threads, row);
    case U16: return read_tensor(data, desc, IntegerBlocks<uint16_t>(), threads, row);
    case U32: return read_tensor(data, desc, IntegerBlocks<uint32_t>(), threads, row);
    case U64: return read_tensor(data, desc, IntegerBlocks<uint64_t>(), threads, row);
    case BOOL: return read_tensor(data, desc, IntegerBlocks<uint8_t, true>(), threads, row);
    case BYTES: return read_tensor(data, desc, PatternBlocks<false>(table), threads, row);
    case NIBBLES: return read_tensor(data, desc, PatternBlocks<true>(table), threads, row);
  }
}

}  // namespace

struct Reader {  // the arguments that are the same in each reading
  const int64_t* descs;
  const int64_t* starts;  // offset of each tensor's descriptor in `descs`
  int64_t tensors;
  const Table* tables;
  int64_t big;  // minimum elements of a tensor for several threads
};

extern "C" void stepscope_stats(const Reader* reader, const void* const* data, int threads, Row* rows) {
  const Environment environment;
  for (int64_t i = 0; i < reader->tensors; i++) {
    const int64_t* desc = reader->descs + reader->starts[i];
    dispatch(desc, data[i], reader->tables, desc[COUNT] >= reader->big ? threads : 1, rows[i]);
  }
}
