/* Two buyers, one unit, one more unit added. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define ADJUST_UP
#include "../dropgate.pml"
