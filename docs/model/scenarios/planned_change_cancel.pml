/* One reservation, a planned change, a cancel while queued or ordered, and the queue deadline. */
#define PLANNED_CHANGE
#define CANCEL_A 1
#define TIME_PASSES
#include "../dropgate.pml"
