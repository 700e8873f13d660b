// The roofline of a core: CartPole-v1 under random actions with auto-reset, written by hand, float32.
//
// The equations of jaxrl/envs/classic/cartpole.py (Florian 2007, explicit Euler, 500 steps an episode). `one`: an
// environment after another, its state in registers. `abreast`: LANES of them in one loop, which the compiler turns into
// vector instructions. sine and cosine are the Taylor polynomials of degree 9 and 8, exact to rounding where a pole may
// stand (|theta| <= 0.21 rad and a step beyond); random numbers are xorshift32, an action is its top bit. Prints steps a
// second of processor time and a sum that keeps the loops alive.
//
// Built and run by native.py: cc -O3 -march=native -ffast-math.

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LANES 64

typedef struct {
    float x[LANES], x_dot[LANES], theta[LANES], theta_dot[LANES];
    int32_t time[LANES];
    uint32_t random[LANES];
} Carts;

static inline uint32_t next_word(uint32_t word) {
    word ^= word << 13;
    word ^= word >> 17;
    return word ^ word << 5;
}

// 24 bits of a word, uniform in [-0.05, 0.05).
static inline float start(uint32_t word) { return (float)(int32_t)(word >> 8) * (0.1f / 16777216.0f) - 0.05f; }

// A step of lane i; returns whether its episode ended.
static inline int step(Carts *c, int i) {
    uint32_t word = next_word(c->random[i]);
    float force = word >> 31 ? 10.0f : -10.0f;
    float theta = c->theta[i], square = theta * theta;
    float sine = theta * (1 - square / 6 * (1 - square / 20 * (1 - square / 42 * (1 - square / 72))));
    float cosine = 1 - square / 2 * (1 - square / 12 * (1 - square / 30 * (1 - square / 56)));
    float temp = (force + 0.05f * c->theta_dot[i] * c->theta_dot[i] * sine) * (1 / 1.1f);
    float theta_acc = (9.8f * sine - cosine * temp) / (0.5f * (4.0f / 3.0f - 0.1f / 1.1f * cosine * cosine));
    float x_acc = temp - 0.05f / 1.1f * theta_acc * cosine;
    float x = c->x[i] + 0.02f * c->x_dot[i], x_dot = c->x_dot[i] + 0.02f * x_acc;
    float new_theta = theta + 0.02f * c->theta_dot[i], theta_dot = c->theta_dot[i] + 0.02f * theta_acc;
    int32_t time = c->time[i] + 1;
    int ended = (fabsf(x) > 2.4f) | (fabsf(new_theta) > 0.20943951f) | (time >= 500);
    // A start is drawn always and taken where the episode ended: no branch, so lanes stay abreast.
    uint32_t a = next_word(word), b = next_word(a), d = next_word(b), e = next_word(d);
    c->x[i] = ended ? start(a) : x;
    c->x_dot[i] = ended ? start(b) : x_dot;
    c->theta[i] = ended ? start(d) : new_theta;
    c->theta_dot[i] = ended ? start(e) : theta_dot;
    c->time[i] = ended ? 0 : time;
    c->random[i] = ended ? e : word;
    return ended;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void begin(Carts *c) {
    memset(c, 0, sizeof *c);
    for (int i = 0; i < LANES; i++) c->random[i] = 2463534242u + 7919u * (uint32_t)i;
}

static int64_t one(Carts *c, int64_t steps) {
    int64_t ends = 0;
    for (int i = 0; i < LANES; i++)
        for (int64_t t = 0; t < steps; t++) ends += step(c, i);
    return ends;
}

static int64_t abreast(Carts *c, int64_t steps) {
    int64_t ends = 0;
    for (int64_t t = 0; t < steps; t++) {
        int32_t ended = 0;
        for (int i = 0; i < LANES; i++) ended += step(c, i);
        ends += ended;
    }
    return ends;
}

int main(int count, char **words) {
    int64_t steps = count > 1 ? atoll(words[1]) : 1000000;
    int64_t (*loops[2])(Carts *, int64_t) = {one, abreast};
    const char *names[2] = {"one", "abreast"};
    printf("{");
    for (int k = 0; k < 2; k++) {
        Carts carts;
        begin(&carts);
        double from = now();
        int64_t ends = loops[k](&carts, steps);
        double rate = (double)(steps * LANES) / (now() - from);
        printf("%s\"%s\": %.0f, \"%s_length\": %.2f", k ? ", " : "", names[k], rate, names[k],
               (double)(steps * LANES) / (double)ends);
    }
    printf("}\n");
    return 0;
}
