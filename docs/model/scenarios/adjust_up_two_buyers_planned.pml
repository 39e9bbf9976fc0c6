/* Two buyers, one unit, one more unit added, and a planned change of authority. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define ADJUST_UP
#define PLANNED_CHANGE
#include "../dropgate.pml"
